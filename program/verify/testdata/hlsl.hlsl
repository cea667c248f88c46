RWStructuredBuffer<float> a : register(u0);
StructuredBuffer<float4> b : register(t1);
RWByteAddressBuffer c : register(u2);
groupshared float t[64];
float f(float x, inout float y){ y+=x; return y*2; }
[numthreads(64,1,1)] void main(uint3 id:SV_DispatchThreadID, uint3 l:SV_GroupThreadID){
 float4 v=b[id.x]; float y=v.x; t[l.x]=f(v.y,y); GroupMemoryBarrierWithGroupSync();
 for(int i=0;i<4;i++){ if(v[i]>2) continue; y+=v[i]; }
 a[id.x]=t[63-l.x]+y; uint o; c.InterlockedAdd(4,1u,o); c.Store(8, asuint(y)); }
