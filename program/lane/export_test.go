package lane

// For the tests outside of the package.
var (
	GLSL    = glsl
	GLSLFor = glslFor
	Words   = words
	Floats  = floats
)
