package vfio

// LoadRegister reads device memory that a test has mapped itself.
var LoadRegister = loadRegister
