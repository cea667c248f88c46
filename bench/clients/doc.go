// Package clients has tests of the model server's HTTP API with independent
// clients: OpenAI's official library, and a browser on the page. They run against
// the handler with a model that computes nothing and has known answers and
// failures, and against the built commands: device-manager, its driver and
// model-server.
package clients
