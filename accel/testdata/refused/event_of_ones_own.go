// events are made by streams: mine does not implement accel.AnyEvent
package main

import "capgpu/accel"

type mine struct{}

func wait(s *accel.Stream[accel.Device]) { s.Wait(mine{}) }
