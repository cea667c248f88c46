// The API: what is asked and what comes. Nothing here touches the page.

// Failure is an error that the server told, or that there was no server.
export class Failure extends Error {
  constructor(message, code = "", status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

let token = sessionStorage.getItem("token") || "";

export function useToken(value) {
  token = value;
  sessionStorage.setItem("token", value);
}

function headers(more) {
  return token ? { ...more, Authorization: "Bearer " + token } : more;
}

async function failureOf(response) {
  try {
    const { error } = await response.json();
    return new Failure(String(error.message), String(error.code), response.status);
  } catch {
    return new Failure("the server answered " + response.status, "", response.status);
  }
}

export async function status() {
  const response = await fetch("/v1/status", { headers: headers({}), cache: "no-store", signal: AbortSignal.timeout(8000) });
  if (!response.ok) throw await failureOf(response);
  return response.json();
}

// stream asks for an answer and calls on.text(text) for each token that comes, and
// on.usage once. It returns why the answer ended, and throws where it did not end well:
// a stream that stops without [DONE] is no answer.
export async function stream(path, body, on, signal) {
  const response = await fetch(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await failureOf(response);
  let finish = "";
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return finish;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Failure(String(chunk.error.message), String(chunk.error.code));
    if (chunk.usage) on.usage(chunk.usage, chunk.timings);
    for (const choice of chunk.choices || []) {
      const text = choice.delta ? choice.delta.content : choice.text;
      if (text) on.text(text);
      if (choice.finish_reason) finish = choice.finish_reason;
    }
  }
  throw new Failure("the answer broke off");
}

// events are the data of server-sent events.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
        if (data.length > 0) yield data.join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
