// What needs a look, the NUMA nodes, the pods, the last repairs and faults: tables made from each new state.

const COLUMNS = [
  ["pod", whose],
  ["state", (pod) => pod.state],
  ["CPUs", (pod) => ids(pod.cpus).length],
  ["NUMA nodes", (pod) => pod.numaNodes],
  ["memory", (pod) => bytesOf(pod)],
  ["devices", (pod) => pod.devices.length],
  ["reason", (pod) => pod.why],
];
const order = { column: -1, down: false };
const MOST = 12; // entries that need a look, before "and so many more"

const bytesOf = (pod) => Object.values(pod.memory).flatMap(Object.values).reduce((sum, each) => sum + each, 0);
const link = (pod) => el("a", { href: `#pod/${pod.uid}` }, whose(pod));
const stateOf = (pod) => el("span", { class: `state ${pod.state.startsWith("not ") ? "misaligned" : pod.state.split(" ")[0]}` }, pod.state);

// ---- what needs a look

function showAttention({ node, pods }) {
  const lines = [];
  if (!node.ready) lines.push(["The agent is not ready", `: ${node.missing}`]);
  for (const why of node.stopped) lines.push(["Nothing is written", `: ${why}`]);
  for (const why of node.wrongManifests.slice(0, MOST)) lines.push(["A manifest is wrong, and not served", `: ${why}`]);
  const rank = (pod) => ["refused", "waiting", "not enforced", "not aligned"].indexOf(pod.state) >>> 0;
  const found = pods.filter((pod) => pod.attention).sort((a, b) => rank(a) - rank(b));
  for (const pod of found.slice(0, MOST)) lines.push([link(pod), " ", stateOf(pod), `: ${pod.why}`]);
  if (found.length > MOST) lines.push([`and ${found.length - MOST} more in the table of pods`]);
  const late = (each) => (Date.now() + state.ahead) / 1000 - each.at < 900; // by the node's clock
  const repaired = node.repairs.filter(late);
  if (repaired.length) lines.push([`${plural(repaired.length, "cgroup file")} put right in the last 15 minutes; the last one`, owner(repaired[0]), `: ${repaired[0].text}`]);
  const problems = node.problems.filter(late);
  if (problems.length) lines.push([`${plural(problems.length, "problem")} in the last 15 minutes; the last one: ${problems[0].text}`]);
  $("attention").hidden = !lines.length;
  $("attention").querySelector("ul").replaceChildren(...lines.map((parts) => el("li", {}, ...parts)));
}

const owner = (repair) => repair.pod ? ` of ${repair.pod}${repair.container ? ` (${repair.container})` : ""}` : ` (${repair.path})`;

// ---- NUMA nodes

function strip(shares) {
  const all = shares.reduce((sum, share) => sum + share.amount, 0);
  const made = el("div", { class: "strip", role: "img", "aria-label": shares.map((share) => share.tip).join("; ") });
  for (const { amount, kind, text = "", tip } of shares) {
    const part = el("span", { class: kind, title: tip, "aria-hidden": "true" }, amount > all * .05 ? text : "");
    part.style.flexGrow = amount;
    made.append(part);
  }
  return made;
}

// A pod's share of a bar, with its letter as in the picture.
const held = (pod, amount, told) => ({ amount, kind: `k${pod.picture.colour}`, text: pod.picture.letter, tip: `${pod.picture.letter} ${whose(pod)}: ${told}` });

function cpuShares(node, pods) {
  const here = new Set([...ids(node.exclusive), ...ids(node.shared), ...ids(node.reserved)]);
  const shares = [];
  for (const pod of pods) {
    const mine = ids(pod.cpus).filter((cpu) => here.has(cpu));
    if (mine.length) shares.push(held(pod, mine.length, plural(mine.length, "CPU")));
  }
  const reserved = ids(node.reserved).length, free = ids(node.free).length;
  if (reserved) shares.push({ amount: reserved, kind: "kept", tip: `${plural(reserved, "CPU")} reserved` });
  if (free) shares.push({ amount: free, kind: "free", tip: `${plural(free, "CPU")} free` });
  return shares;
}

function memoryShares(node, pods) {
  const shares = [], sum = (key) => Object.values(node.memory).reduce((all, each) => all + each[key], 0);
  let known = 0;
  for (const pod of pods) {
    const mine = Object.values(pod.memory[node.id] ?? {}).reduce((all, each) => all + each, 0);
    if (mine) shares.push(held(pod, mine, size(mine)));
    known += mine;
  }
  const others = sum("granted") - known, system = sum("system"), free = sum("free");
  if (others > 0) shares.push({ amount: others, kind: "kept", tip: `${size(others)} granted over several nodes` });
  if (system > 0) shares.push({ amount: system, kind: "kept", tip: `${size(system)} kept for the system` });
  if (free > 0) shares.push({ amount: free, kind: "free", tip: `${size(free)} free` });
  return shares;
}

function showNodes({ node, pods }) {
  const drawn = pods.filter((pod) => pod.picture);
  $("numa").replaceChildren(...node.numaNodes.map((each) => {
    const sum = (key) => Object.values(each.memory).reduce((all, one) => all + one[key], 0);
    const all = new Set([...ids(each.exclusive), ...ids(each.shared), ...ids(each.reserved)]).size;
    return el("li", { "aria-label": `NUMA node ${each.id}` },
      el("b", {}, String(each.id)),
      all ? strip(cpuShares(each, drawn)) : el("i"),
      el("span", {}, all ? `${ids(each.free).length} of ${plural(all, "CPU")} free` : "no CPUs"),
      sum("total") ? strip(memoryShares(each, drawn)) : el("i"),
      el("span", {}, sum("total") ? `${size(sum("free"))} of ${size(sum("total"))} free` : "no memory"));
  }));
}

// ---- pods

function shownPods(pods) {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (pod) => [whose(pod), pod.state, pod.why, pod.qos, pod.policy, ...pod.devices].join(" ").toLowerCase();
  const found = pods.filter((pod) => words.every((word) => text(pod).includes(word)));
  if (order.column < 0) return found;
  const value = COLUMNS[order.column][1], sense = order.down ? -1 : 1;
  const compare = (a, b) => typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  return found.sort((a, b) => sense * compare(value(a), value(b)));
}

function showPods({ pods }) {
  const table = $("table"), focused = table.contains(document.activeElement) ? document.activeElement.getAttribute("href") : "";
  const found = shownPods(pods);
  $("count").textContent = found.length === pods.length ? plural(pods.length, "pod") : `${found.length} of ${plural(pods.length, "pod")}`;
  table.tHead.rows[0].replaceChildren(...COLUMNS.map(([name], column) => {
    const button = el("button", { type: "button" }, name);
    button.addEventListener("click", () => sortBy(column));
    const sorted = column === order.column ? (order.down ? "descending" : "ascending") : "none";
    return el("th", { scope: "col", "aria-sort": sorted }, button);
  }));
  table.tBodies[0].replaceChildren(...found.map(podRow));
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, column) => { cell.dataset.name = COLUMNS[column][0]; });
  if (!found.length) table.tBodies[0].append(el("tr", {}, el("td", { colspan: COLUMNS.length, class: "dim" }, pods.length ? "no pod fits the filter" : "no pods yet")));
  if (focused) table.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function podRow(pod) {
  const cpus = pod.cpus || (pod.confinedTo ? `shared, on node ${pod.confinedTo}` : ["refused", "waiting"].includes(pod.state) ? "" : "shared");
  const memory = Object.entries(pod.memory).map(([node, per]) =>
    `${node}: ${Object.entries(per).sort(([a], [b]) => b.localeCompare(a)).map(([name, amount]) => `${size(amount)}${name === "memory" ? "" : ` in ${name.slice(10)} pages`}`).join(", ")}`);
  const row = el("tr", { "data-uid": pod.uid },
    el("td", { class: "name" }, sign(pod.picture), link(pod)),
    el("td", {}, stateOf(pod)),
    el("td", { class: "set" }, ...whole(cpus)),
    el("td", { class: "set" }, ...whole(pod.numaNodes)),
    el("td", { class: "set" }, memory.join("; ")),
    el("td", { class: "set" }, ...whole(pod.devices.join(","))),
    el("td", { class: "why" }, ...(pod.why ? prose(pod.why) : [])));
  row.addEventListener("mouseenter", () => light(pod.picture?.number));
  row.addEventListener("mouseleave", () => light());
  row.addEventListener("focusin", () => light(pod.picture?.number));
  row.addEventListener("focusout", () => light());
  return row;
}

function sortBy(column) {
  if (order.column !== column) [order.column, order.down] = [column, false];
  else if (!order.down) order.down = true;
  else order.column = -1;
  showPods(state);
  $("table").tHead.rows[0].cells[column].querySelector("button").focus();
}

// ---- lately

function showLately({ node }) {
  const rows = [
    ...node.repairs.map((each) => [each.at, "repair", each.pod ? `${each.pod}${each.container ? ` (${each.container})` : ""}` : each.path, each.text]),
    ...node.problems.map((each) => [each.at, each.what, "", each.text]),
  ].sort((a, b) => b[0] - a[0]).slice(0, 40);
  $("lately").hidden = !rows.length;
  $("lately").querySelector("tbody").replaceChildren(...rows.map(([at, ...texts]) =>
    el("tr", {}, el("td", {}, clock(at)), ...texts.map((text) => el("td", {}, text)))));
}
