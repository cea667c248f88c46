// Package vk is as much of Vulkan as this project calls: numbers, layouts, and the functions
// of libvulkan.so.1 by name. It needs no C compiler and no headers; the library is opened at
// run time.
//
// Nothing here checks an argument: the caller does what the Vulkan specification asks of it.
package vk
