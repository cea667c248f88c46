// The page: a conversation, how fast it comes, and how the server is. Text of others is
// put in as text, never as markup.
import { Failure, status, stream, useToken } from "/page/api.js";
import { budgetMeters, bytes, count, element, meter, span } from "/page/session.js";

const $ = (id) => document.getElementById(id);
const messages = []; // of the conversation, as the API wants them
let conversation = 0; // counts them, so that an answer does not get into the next
let running = null; // the AbortController of the answer that is being made
let last = null; // status that came last
let rate = null; // tokens and time at the last status

// --- asking

function settings() {
  const tokens = Math.floor(Number($("tokens").value));
  return { temperature: Number($("temperature").value), max_tokens: Number.isFinite(tokens) && tokens >= 1 ? tokens : 256 };
}

const mode = () => document.querySelector('input[name="mode"]:checked').value;

function nearEnd() {
  const s = $("scroller");
  return s.scrollHeight - s.scrollTop - s.clientHeight < 80;
}

const toEnd = () => { $("scroller").scrollTop = $("scroller").scrollHeight; };

function addMessage(who, text) {
  $("empty").hidden = true;
  const box = element("article", "message " + who);
  box.setAttribute("aria-label", who === "mine" ? "You" : "Model");
  const body = element("div", "text");
  body.append(document.createTextNode(text));
  box.append(body);
  $("log").append(box);
  toEnd();
  return { box, body, text: body.firstChild };
}

// clock tells tokens per second: of what came after the first token, which waited for
// the queue and the prompt. The server knows best; until it tells, we count what comes,
// as long as it does not come all at once.
function clock() {
  const asked = performance.now();
  let first = 0, latest = 0, tokens = 0;
  return {
    came() {
      latest = performance.now();
      first = first || latest;
      tokens++;
    },
    tokens: () => tokens,
    first: () => (first ? first - asked : 0),
    speed(exact = tokens, decoding = 0) {
      const took = decoding > 0 ? decoding : latest - first;
      return exact > 1 && (decoding > 0 || took > 20) ? ((exact - 1) * 1000) / took : 0;
    },
  };
}

const perSecond = (n) => `${n >= 100 ? count(Math.round(n)) : n.toFixed(1)} tokens/s`;

async function ask(path, body, given) {
  const answer = addMessage("theirs", "");
  if (given) answer.body.prepend(element("span", "given", given));
  answer.body.classList.add("going");
  const control = new AbortController();
  running = control;
  buttons();
  const time = clock();
  let pending = "", timer = 0, usage = null, decoding = 0;
  const show = () => {
    timer = 0;
    const follow = nearEnd();
    answer.text.appendData(pending);
    pending = "";
    if (time.speed() > 0) $("speed").textContent = perSecond(time.speed());
    if (follow) toEnd();
  };
  let ended = "", failure = null;
  try {
    ended = await stream(path, body, {
      text(t) {
        time.came();
        pending += t;
        timer = timer || setTimeout(show, 40); // thousands a second are no thousand layouts
      },
      usage(u, t) { usage = u; decoding = t ? t.decode_ms : 0; },
    }, control.signal);
  } catch (e) {
    if (control.signal.aborted) ended = "stopped";
    else failure = e instanceof Failure ? e : new Failure("the connection broke: " + e.message);
  }
  clearTimeout(timer);
  show();
  answer.body.classList.remove("going");
  running = null;
  buttons();
  const tokens = usage ? usage.completion_tokens : time.tokens();
  const speed = time.speed(tokens, decoding);
  answer.box.append(footer(ended, failure, tokens, speed, time.first()));
  $("speed").textContent = speed > 0 ? perSecond(speed) : "";
  if (nearEnd()) toEnd();
  refresh();
  return { text: answer.text.data, failure };
}

const endings = { stop: "", length: "the token limit ended it", stopped: "you stopped it" };

function footer(ended, failure, tokens, speed, first) {
  const line = element("div", "end");
  if (failure) {
    line.classList.add("bad");
    line.setAttribute("role", "alert");
    line.append(element("span", "", (failure.code ? failure.code + ": " : "") + failure.message));
    const again = element("button", "", "Try again");
    again.type = "button";
    again.addEventListener("click", () => {
      if (running) return;
      line.parentElement.remove();
      go();
    });
    line.append(again);
    return line;
  }
  line.append(element("span", "", `${count(tokens)} ${tokens === 1 ? "token" : "tokens"}`));
  if (speed > 0) line.append(element("span", "rate", perSecond(speed)));
  if (first > 0) line.append(element("span", "", `first after ${span(first * 1e6)}`));
  if (endings[ended]) line.append(element("span", "", endings[ended]));
  return line;
}

// go asks for an answer to what is there.
async function go() {
  const mine = conversation;
  const { text, failure } = mode() === "text"
    ? await ask("/v1/completions", { prompt: messages.map((m) => m.content).join(""), ...settings() }, messages.at(-1).content)
    : await ask("/v1/chat/completions", { messages: [...messages], ...settings() }, "");
  if (!failure && mine === conversation) messages.push({ role: "assistant", content: text });
}

function send() {
  const text = $("prompt").value;
  if (running || $("send").disabled || (text.trim() === "" && mode() === "chat")) return;
  // One that failed and was not tried again is taken back.
  if (messages.at(-1)?.role === "user") messages.pop();
  messages.push({ role: "user", content: text });
  if (mode() === "chat") addMessage("mine", text);
  $("prompt").value = "";
  fit();
  go();
}

function buttons() {
  $("stop").hidden = !running;
  $("send").hidden = Boolean(running);
  $("log").setAttribute("aria-busy", String(Boolean(running)));
  const can = last && last.state === "ready";
  $("send").disabled = !can;
  $("send").title = can ? "" : "the server cannot answer now";
}

// --- the server

const tellings = {
  loading: "The model is being loaded.", recovering: "The device went away. The model loads again by itself when it is back.",
  revoked: "The session was taken away; this server will not answer any more.", stopped: "The server stops.",
  unreachable: "The server does not answer.", token: "This server asks for a token.",
};

function showState(state, reason) {
  $("state").dataset.state = state;
  $("state-text").textContent = state === "token" ? "token needed" : state;
  const banner = $("banner");
  banner.hidden = state === "ready";
  banner.classList.toggle("bad", ["revoked", "stopped", "unreachable"].includes(state));
  const text = (tellings[state] || "") + (reason ? ` (${reason})` : "");
  if (banner.textContent !== text) banner.textContent = text;
}

function facts(rows) {
  $("facts").replaceChildren(...rows.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
}

function showStatus(s) {
  showState(s.state, s.reason);
  $("model").textContent = s.model.id;
  document.title = `${s.model.id} · capgpu`;
  $("device").textContent = s.device.name || "no device";
  $("device-state").textContent = s.device.name ? s.device.state : "";
  $("device-more").textContent = s.device.name
    ? [s.device.backend, s.device.pci, bytes(s.device.memory_bytes), `driver ${s.device.epoch}`].filter(Boolean).join(" · ") : "";
  const { main, rest } = budgetMeters(s.budget, s.device);
  $("budget").replaceChildren(...main);
  $("budget").classList.toggle("stale", s.state !== "ready"); // of the session that was
  $("budget-rest").hidden = rest.length === 0;
  $("budget-rest").querySelector("summary").textContent = `${rest.length} more`;
  $("budget-more").replaceChildren(...rest);
  $("loading").hidden = !s.loading;
  if (s.loading) {
    const { loaded_bytes: done, bytes: all } = s.loading;
    $("loading").replaceChildren(meter("Loading weights", all ? `${bytes(done)} of ${bytes(all)}` : "…", done, all, 0));
  }
  const c = s.cache;
  $("cache").replaceChildren(...(c.pages ? [meter("KV cache", `${count(c.pages_used * c.page_positions)} of ${count(c.pages * c.page_positions)} positions`, c.pages_used, c.pages, 0)] : []));
  let now = 0;
  if (rate && s.time_ns > rate.time) now = Math.max(0, ((s.totals.completion_tokens - rate.tokens) * 1e9) / (s.time_ns - rate.time));
  rate = { tokens: s.totals.completion_tokens, time: s.time_ns };
  facts([
    ["Speed, all answers", perSecond(now)],
    ["Running, waiting", `${count(s.requests.running)}, ${count(s.requests.waiting)}`],
    ["Tokens made", count(s.totals.completion_tokens)],
    ["Context", `${count(s.model.context_length)} tokens`],
    ["Weights", `${bytes(s.model.weight_bytes)}, ${s.model.format}`],
    ...(s.totals.recoveries ? [["Recovered", `${count(s.totals.recoveries)} ×`]] : []),
  ]);
  if (s.model.context_length > 0) $("tokens").max = s.model.context_length;
}

let polling = 0, refreshing = false;

async function refresh() {
  if (refreshing) return;
  refreshing = true;
  clearTimeout(polling);
  let wait = 2000;
  try {
    last = await status();
    document.body.classList.remove("unknown");
    $("token-card").hidden = true;
    showStatus(last);
    if (last.state === "loading" || last.state === "recovering") wait = 500;
  } catch (e) {
    last = null;
    if (e.status === 401) {
      if ($("token-card").hidden) {
        $("token-card").hidden = false;
        if (matchMedia("(max-width: 860px)").matches) panel(true);
        $("token").focus();
      }
      showState("token", sessionStorage.getItem("token") ? "the one given is wrong" : "");
    } else {
      showState("unreachable", e instanceof Failure ? e.message : "");
    }
  }
  buttons();
  refreshing = false;
  polling = setTimeout(refresh, document.hidden ? 10000 : wait);
}

// --- the rest of the page

function fit() {
  const p = $("prompt");
  p.style.height = "auto";
  p.style.height = p.scrollHeight + "px";
}

function panel(show) {
  document.body.classList.toggle("panel", show);
  $("show-panel").setAttribute("aria-expanded", String(show));
  $("show-panel").textContent = show ? "Back" : "Session";
}

const themes = { "": "as the system", light: "light", dark: "dark" };

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  $("theme").setAttribute("aria-label", "Colours: " + themes[name]);
  $("theme").title = "Colours: " + themes[name];
  localStorage.setItem("theme", name);
}

function stop() { if (running) running.abort(); }

$("composer").addEventListener("submit", (e) => { e.preventDefault(); send(); });
$("prompt").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
});
$("prompt").addEventListener("input", fit);
$("stop").addEventListener("click", () => { stop(); $("prompt").focus(); });
document.addEventListener("keydown", (e) => { if (e.key === "Escape") stop(); });
$("fresh").addEventListener("click", () => {
  stop();
  conversation++;
  messages.length = 0;
  $("log").replaceChildren();
  $("empty").hidden = false;
  $("speed").textContent = "";
  panel(false);
  $("prompt").focus();
});
$("theme").addEventListener("click", () => {
  const order = Object.keys(themes);
  theme(order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % order.length]);
});
$("show-panel").addEventListener("click", () => panel(!document.body.classList.contains("panel")));
$("temperature").addEventListener("input", () => { $("temperature-now").textContent = Number($("temperature").value).toFixed(1); });
$("token-form").addEventListener("submit", (e) => {
  e.preventDefault();
  useToken($("token").value.trim());
  $("token").value = "";
  panel(false);
  refresh();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
theme(Object.hasOwn(themes, localStorage.getItem("theme") || "") ? localStorage.getItem("theme") || "" : "");
if (matchMedia("(pointer: fine)").matches) $("prompt").focus(); // elsewhere a keyboard would come up
buttons();
refresh();
