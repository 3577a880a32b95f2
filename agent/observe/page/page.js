// The page: what is shown, how it is followed, explanations, light and dark.

const state = { revision: "", heard: 0, since: 0, ahead: 0, told: 0, fetching: false, node: null, pods: [] };
const QUIET = 12000; // milliseconds without a beat after which the agent counts as gone: it beats every five seconds

// ---- following

// What to wait for where the agent has no CPU left for readers (503), in milliseconds.
const later = (answer) => new Promise((resolve) => setTimeout(resolve, 1000 * (Number(answer) || 1)));

async function get(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(10000) });
  if (answer.status === 503) return later(answer.headers.get("Retry-After")).then(() => get(path));
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  state.ahead = Date.parse(answer.headers.get("Date")) - Date.now() || 0;
  return answer.json();
}

// Fetches what is shown now, and once more if the agent has sent a new revision in between.
async function refresh() {
  if (state.fetching) return;
  state.fetching = true;
  try {
    let told;
    do {
      told = state.told;
      const [node, pods] = await Promise.all([get("/api/node"), get("/api/pods")]);
      [state.node, state.pods] = [node, pods.pods];
      show();
      await drawPicture();
      state.revision = pods.revision;
      heard();
      if (told !== state.told) await new Promise((resolve) => setTimeout(resolve, 500)); // a node that is busy
    } while (told !== state.told);
  } catch {
    lost();
    setTimeout(refresh, 2000);
  } finally {
    state.fetching = false;
  }
}

function show() {
  const { node } = state;
  document.title = plain(`${node.node || "numalign"} · numalign`);
  $("node").textContent = plain(node.node || node.machine.name || "numalign");
  $("headline").textContent = node.headline;
  const told = node.settings;
  $("settings").textContent = `Topology policy ${told.topologyManagerPolicy} (scope ${told.topologyManagerScope}), CPUs ${told.cpuManagerPolicy}, memory ${told.memoryManagerPolicy}, onMisalignment: ${told.onMisalignment}, compatibility: ${told.answers}.`;
  $("agent").textContent = `numalign ${node.agent}`;
  showAttention(state);
  showNodes(state);
  showPods(state);
  showLately(state);
  explain();
}

function heard() {
  state.heard = Date.now();
  state.since = 0;
  document.body.classList.remove("stale");
  $("live").className = "chip good";
  if ($("live").textContent !== "● live") $("live").textContent = "● live";
}

function lost() {
  state.since ||= state.heard || Date.now();
  document.body.classList.add("stale");
  $("live").className = "chip bad";
  const text = `agent is not answering since ${new Date(state.since).toLocaleTimeString()}`;
  if ($("live").textContent !== text) $("live").textContent = text;
}

function follow() {
  const events = new EventSource("/api/events");
  const told = (event) => {
    if (JSON.parse(event.data).revision === state.revision) return heard();
    state.told += 1;
    return refresh();
  };
  events.addEventListener("state", told);
  events.addEventListener("beat", told);
  events.addEventListener("error", () => {
    if (Date.now() - state.heard > 3000) lost();
    if (events.readyState !== EventSource.CLOSED) return;
    setTimeout(follow, 5000); // refused, as when too many follow: it does not try again by itself
    refresh();
  });
}

// ---- explanations

async function explain() {
  const uid = location.hash.match(/^#pod\/([A-Za-z0-9._-]{1,253})$/)?.[1];
  const dialog = $("why"), body = dialog.querySelector("div");
  if (!uid) { if (dialog.open) dialog.close(); return; }
  const pod = state.pods.find((each) => each.uid === uid);
  $("why-title").replaceChildren(...[sign(pod?.picture), plain(pod ? whose(pod) : uid)].filter(Boolean));
  if (!dialog.open) { dialog.showModal(); body.replaceChildren(el("p", { class: "dim" }, "asking the agent…")); $("why-title").focus(); }
  try {
    const fresh = el("div", {}, ...explained(await get(`/api/pods/${uid}/explanation`)));
    if (fresh.textContent !== body.textContent) body.replaceChildren(...fresh.childNodes); // what is read stays in place
  } catch {
    body.replaceChildren(el("p", {}, "The agent does not know this pod any more, or does not answer."));
  }
}

const capital = (text) => /^([a-z0-9-]+: |\S+[A-Z./]\S)/.test(text) ? `${text}.` : `${text[0].toUpperCase()}${text.slice(1)}.`; // names keep their letters
const list = (head, texts) => texts.length ? [el("h3", {}, head), el("ul", {}, ...texts.map((text) => el("li", {}, ...prose(capital(text)))))] : [];

function explained(found) {
  const help = found.remedies.map((each) => `it would ${found.refusal ? "get in" : "be aligned"} ${each.sentence}`);
  return [
    el("p", {}, ...prose(`${found.summary}.`), ...prose(found.fate ? ` ${capital(found.fate)}` : "")),
    ...list("Why", found.reasons),
    ...list("What would help", [...help, ...found.searched]),
    ...(found.got.length ? [el("h3", {}, "What it has"), el("div", { class: "scroll" }, containers(found.got))] : []),
    ...list("Containers that share", found.asked.filter((each) => each.shares && !found.reasons.some((text) => text.includes(each.shares))).map((each) => `${each.container}: ${each.shares}`)),
    ...found.merges.map(merge),
    ...list("Besides", found.notes),
    el("p", { class: "dim" }, `Policy ${found.policy} from the ${found.policyFrom}, scope ${found.scope} from the ${found.scopeFrom}; the evidence is of ${found.asOf === "now" ? "now" : "its admission"}.`),
  ];
}

// One decision: each list of hints, the set of nodes that won, and the rule.
function merge(found) {
  const texts = [...found.said.filter((each) => each.stand !== "no preference").map((each) => each.sentence), found.ruleText, ...found.obstacles].filter(Boolean);
  const winner = found.winner === "anyNode" ? "any node" : `NUMA ${found.winner.match(/[-,]/) ? "nodes" : "node"} ${found.winner}`;
  return el("details", {}, el("summary", {}, `How it was decided for ${found.container || "the pod"}: ${found.admit ? winner : "refused"}`),
    el("ul", {}, ...texts.map((text) => el("li", {}, ...prose(capital(text))))));
}

function containers(rows) {
  const heads = ["container", "CPUs", "NUMA nodes", "devices", "reason"];
  return el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {},
      el("td", { class: "name" }, row.container),
      el("td", { class: "set" }, ...whole(row.cpus ?? `shared: ${row.shared}`)),
      el("td", { class: "set" }, row.numaNodes),
      el("td", { class: "set" }, Object.values(row.devices).flat().join(", ")),
      el("td", { class: "why" }, ...prose(row.why))))));
}

// ---- light and dark, keys, start

const dark = matchMedia("(prefers-color-scheme: dark)");

function theme(chosen) {
  document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
}

function remembered(value) {
  try { // a browser may forbid storage
    if (value) localStorage.setItem("theme", value);
    return localStorage.getItem("theme");
  } catch { return value ?? null; }
}

theme(remembered());
dark.addEventListener("change", () => theme(remembered()));
$("theme").addEventListener("click", () => theme(remembered(document.documentElement.dataset.theme === "dark" ? "light" : "dark") ));
addEventListener("beforeprint", () => theme("light"));
addEventListener("afterprint", () => theme(remembered()));
addEventListener("hashchange", explain);
$("why").addEventListener("close", () => { if (location.hash.startsWith("#pod/")) history.replaceState(null, "", location.pathname); });
$("filter").addEventListener("input", () => showPods(state));
addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "TEXTAREA"].includes(event.target.tagName) && !$("why").open) {
    event.preventDefault();
    $("filter").focus();
  }
});
setInterval(() => { if (Date.now() - state.heard > QUIET) lost(); }, 1000);
setInterval(() => { if (state.node) showAttention(state); }, 30000); // what was a while ago needs no look any more
startPicture();
follow();
