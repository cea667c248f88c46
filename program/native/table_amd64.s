#include "textflag.h"

// Eight words of ones, then eight of zeros: 32 bytes at 32-4n mask n lanes.
DATA ·tailMask+0(SB)/8, $0xffffffffffffffff
DATA ·tailMask+8(SB)/8, $0xffffffffffffffff
DATA ·tailMask+16(SB)/8, $0xffffffffffffffff
DATA ·tailMask+24(SB)/8, $0xffffffffffffffff
DATA ·tailMask+32(SB)/8, $0
DATA ·tailMask+40(SB)/8, $0
DATA ·tailMask+48(SB)/8, $0
DATA ·tailMask+56(SB)/8, $0
GLOBL ·tailMask(SB), RODATA|NOPTR, $64

// Constants of the EXP macro and others, each in eight lanes.
// 0: 88.8: above, the result is +Inf
DATA ·constants+0(SB)/8, $0x42b1999a42b1999a
DATA ·constants+8(SB)/8, $0x42b1999a42b1999a
DATA ·constants+16(SB)/8, $0x42b1999a42b1999a
DATA ·constants+24(SB)/8, $0x42b1999a42b1999a
// 32: -104: below, it is 0
DATA ·constants+32(SB)/8, $0xc2d00000c2d00000
DATA ·constants+40(SB)/8, $0xc2d00000c2d00000
DATA ·constants+48(SB)/8, $0xc2d00000c2d00000
DATA ·constants+56(SB)/8, $0xc2d00000c2d00000
// 64: log2(e)
DATA ·constants+64(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA ·constants+72(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA ·constants+80(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA ·constants+88(SB)/8, $0x3fb8aa3b3fb8aa3b
// 96: ln 2, its upper bits
DATA ·constants+96(SB)/8, $0x3f3180003f318000
DATA ·constants+104(SB)/8, $0x3f3180003f318000
DATA ·constants+112(SB)/8, $0x3f3180003f318000
DATA ·constants+120(SB)/8, $0x3f3180003f318000
// 128: ln 2, the rest
DATA ·constants+128(SB)/8, $0xb95e8083b95e8083
DATA ·constants+136(SB)/8, $0xb95e8083b95e8083
DATA ·constants+144(SB)/8, $0xb95e8083b95e8083
DATA ·constants+152(SB)/8, $0xb95e8083b95e8083
// 160: polynomial of Cephes expf
DATA ·constants+160(SB)/8, $0x3950696739506967
DATA ·constants+168(SB)/8, $0x3950696739506967
DATA ·constants+176(SB)/8, $0x3950696739506967
DATA ·constants+184(SB)/8, $0x3950696739506967
DATA ·constants+192(SB)/8, $0x3ab743ce3ab743ce
DATA ·constants+200(SB)/8, $0x3ab743ce3ab743ce
DATA ·constants+208(SB)/8, $0x3ab743ce3ab743ce
DATA ·constants+216(SB)/8, $0x3ab743ce3ab743ce
DATA ·constants+224(SB)/8, $0x3c0889083c088908
DATA ·constants+232(SB)/8, $0x3c0889083c088908
DATA ·constants+240(SB)/8, $0x3c0889083c088908
DATA ·constants+248(SB)/8, $0x3c0889083c088908
DATA ·constants+256(SB)/8, $0x3d2aa9c13d2aa9c1
DATA ·constants+264(SB)/8, $0x3d2aa9c13d2aa9c1
DATA ·constants+272(SB)/8, $0x3d2aa9c13d2aa9c1
DATA ·constants+280(SB)/8, $0x3d2aa9c13d2aa9c1
DATA ·constants+288(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA ·constants+296(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA ·constants+304(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA ·constants+312(SB)/8, $0x3e2aaaaa3e2aaaaa
DATA ·constants+320(SB)/8, $0x3f0000003f000000
DATA ·constants+328(SB)/8, $0x3f0000003f000000
DATA ·constants+336(SB)/8, $0x3f0000003f000000
DATA ·constants+344(SB)/8, $0x3f0000003f000000
// 352: 1
DATA ·constants+352(SB)/8, $0x3f8000003f800000
DATA ·constants+360(SB)/8, $0x3f8000003f800000
DATA ·constants+368(SB)/8, $0x3f8000003f800000
DATA ·constants+376(SB)/8, $0x3f8000003f800000
// 384: bias of the exponent
DATA ·constants+384(SB)/8, $0x0000007f0000007f
DATA ·constants+392(SB)/8, $0x0000007f0000007f
DATA ·constants+400(SB)/8, $0x0000007f0000007f
DATA ·constants+408(SB)/8, $0x0000007f0000007f
// 416: -Inf
DATA ·constants+416(SB)/8, $0xff800000ff800000
DATA ·constants+424(SB)/8, $0xff800000ff800000
DATA ·constants+432(SB)/8, $0xff800000ff800000
DATA ·constants+440(SB)/8, $0xff800000ff800000
// 448: sign
DATA ·constants+448(SB)/8, $0x8000000080000000
DATA ·constants+456(SB)/8, $0x8000000080000000
DATA ·constants+464(SB)/8, $0x8000000080000000
DATA ·constants+472(SB)/8, $0x8000000080000000
GLOBL ·constants(SB), RODATA|NOPTR, $480

// What the sixteen values of a half byte of q4_0 stand for: -8 to 7.
DATA ·nibbles+0(SB)/8, $0xc0e00000c1000000
DATA ·nibbles+8(SB)/8, $0xc0a00000c0c00000
DATA ·nibbles+16(SB)/8, $0xc0400000c0800000
DATA ·nibbles+24(SB)/8, $0xbf800000c0000000
DATA ·nibbles+32(SB)/8, $0x3f80000000000000
DATA ·nibbles+40(SB)/8, $0x4040000040000000
DATA ·nibbles+48(SB)/8, $0x40a0000040800000
DATA ·nibbles+56(SB)/8, $0x40e0000040c00000
GLOBL ·nibbles(SB), RODATA|NOPTR, $64

// The numbers of sixteen lanes.
DATA ·lanes+0(SB)/8, $0x0000000100000000
DATA ·lanes+8(SB)/8, $0x0000000300000002
DATA ·lanes+16(SB)/8, $0x0000000500000004
DATA ·lanes+24(SB)/8, $0x0000000700000006
DATA ·lanes+32(SB)/8, $0x0000000900000008
DATA ·lanes+40(SB)/8, $0x0000000b0000000a
DATA ·lanes+48(SB)/8, $0x0000000d0000000c
DATA ·lanes+56(SB)/8, $0x0000000f0000000e
GLOBL ·lanes(SB), RODATA|NOPTR, $64
