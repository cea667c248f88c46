// Package clients has tests of the model server's HTTP API with clients that are not
// ours: OpenAI's official library, and a browser on the page. They run against the
// handler with a model that computes nothing, whose every answer and failure is known,
// and against the built commands: device-manager, its driver and model-server.
package clients
