#version 450
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
layout(local_size_x=64) in;
layout(std430,binding=0) coherent buffer A { uint a[]; };
shared uint s;
void main(){ atomicStore(s, 1u, gl_ScopeWorkgroup, gl_StorageSemanticsShared, gl_SemanticsRelease); controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared|gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease); a[gl_GlobalInvocationID.x] = atomicLoad(s, gl_ScopeWorkgroup, gl_StorageSemanticsShared, gl_SemanticsAcquire)+a[3]; barrier(); memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease| gl_SemanticsMakeAvailable); }
