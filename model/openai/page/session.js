// What the session holds, and how the server is: numbers as people read them, and bars.

const names = {
  deviceMemory: "Device memory", hostMemory: "Pinned host memory", deviceTime: "Device time", buffers: "Buffers", fences: "Fences",
  programs: "Programs", programBytes: "Program memory", queueSlots: "Queue slots", inFlight: "Work in flight", auditBytes: "Audit log",
  sessions: "Sessions", connections: "Connections", iovaEntries: "DMA mappings", mmioBytes: "Device registers", irqVectors: "Interrupts",
};
const first = ["deviceMemory", "deviceTime", "hostMemory", "buffers", "programs", "queueSlots"];
const inBytes = new Set(["deviceMemory", "hostMemory", "programBytes", "auditBytes", "mmioBytes"]);

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function span(nanoseconds) {
  const s = nanoseconds / 1e9;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 120) return `${s.toFixed(1)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${(s / 3600).toFixed(1)} h`;
}

export const count = (n) => n.toLocaleString("en");

function amount(resource, n) {
  if (inBytes.has(resource)) return bytes(n);
  return resource === "deviceTime" ? span(n) : count(n);
}

export function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

// meter is a bar with its numbers; without a limit there is no bar.
export function meter(name, said, used, limit, peak) {
  const box = element("div", "meter");
  const line = element("div", "names");
  line.append(element("span", "", name), element("span", "", said));
  box.append(line);
  if (!limit) return box;
  const part = Math.min(used / limit, 1);
  box.classList.toggle("high", part > 0.85);
  box.classList.toggle("full", part > 0.97);
  const track = element("div", "track");
  track.setAttribute("role", "meter");
  for (const [key, value] of Object.entries({ label: name, valuemin: 0, valuemax: limit, valuenow: Math.min(used, limit), valuetext: said })) {
    track.setAttribute("aria-" + key, String(value));
  }
  const fill = element("div", "fill");
  fill.style.width = `${used > 0 ? Math.max(part * 100, 0.8) : 0}%`;
  track.append(fill);
  if (peak > used) {
    const mark = element("div", "peak");
    mark.style.left = `${Math.min(peak / limit, 1) * 100}%`;
    mark.title = "most so far";
    track.append(mark);
  }
  box.append(track);
  return box;
}

// budgetMeter is one resource. The bar of device memory without a limit is as long as the
// device's.
function budgetMeter(b, device) {
  const used = amount(b.resource, b.used);
  const endless = b.limit === null && b.resource === "deviceMemory";
  let said = used;
  if (endless) said = `${used}, no limit`;
  else if (b.limit) said = `${used} of ${amount(b.resource, b.limit)}`;
  const box = meter(names[b.resource] || b.resource, said, b.used, endless ? device.memory_bytes : b.limit, b.peak);
  box.dataset.resource = b.resource;
  box.title = `most so far: ${amount(b.resource, b.peak)}${endless ? `; the device has ${bytes(device.memory_bytes)}` : ""}`;
  return box;
}

// budgetMeters are the bars of those that matter, and of the others.
export function budgetMeters(budget, device) {
  const place = (b) => (first.indexOf(b.resource) + first.length + 1) % (first.length + 1);
  const shown = budget.filter((b) => b.used > 0 || b.limit !== null);
  const main = shown.filter((b) => first.includes(b.resource)).sort((a, b) => place(a) - place(b));
  const rest = shown.filter((b) => !first.includes(b.resource));
  return { main: main.map((b) => budgetMeter(b, device)), rest: rest.map((b) => budgetMeter(b, device)) };
}
