#version 450
layout(local_size_x=16) in;
layout(std430,binding=0) buffer A { int a[]; };
int f(int x){ return x; x+=2; if(x>3) return x; for(;;){x++;} return 3; }
int g(int x){ for(int i=0;i<x;i++){ break; x++; if (x>2) continue; } while(true){ continue; x++; } return 1; }
void main(){ a[0]=f(a[1]); switch(a[2]){ case 1: break; a[3]=1; case 2: return; a[4]=2; if(a[1]>2) a[4]=3; default: a[5]=g(3);} return; a[1]=2; }
