package engine_test

import stdcontext "context"

// context is that of calls which have bounds of their own.
func context() stdcontext.Context { return stdcontext.Background() }
