package rpcguard

const fuzzServerEnv = "CAPGPU_RPCGUARD_FUZZ_SERVER"

func runFuzzServer() {}
