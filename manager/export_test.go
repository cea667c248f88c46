package manager

// ConnectionDescriptors is for tests that look at the process from outside.
const ConnectionDescriptors = connectionDescriptors
