// The picture: fetched as the drawing that `numalign topology` makes, sized, pointed at, walked by keys.

const picture = { zoom: 0, at: "", before: new Map() };
const styles = 42; // pods that look different from each other; the drawing repeats then

// An XML document, so that nothing of it is parsed as HTML; the policy of the page allows no other way.
function load(full) {
  return new Promise((resolve, reject) => {
    const asked = new XMLHttpRequest();
    asked.open("GET", `/api/picture.svg?bare=1${full ? "&full=1" : ""}`);
    asked.responseType = "document";
    asked.timeout = 10000;
    asked.onload = () => asked.status === 503
      ? later(asked.getResponseHeader("Retry-After")).then(() => load(full)).then(resolve, reject)
      : asked.responseXML?.documentElement.localName === "svg"
      ? resolve(document.adoptNode(asked.responseXML.documentElement)) : reject(new Error(`status ${asked.status}`));
    asked.onerror = asked.ontimeout = () => reject(new Error("no answer"));
    asked.send();
  });
}

async function drawPicture() {
  const drawn = await load($("full").checked);
  const inside = $("picture").contains(document.activeElement);
  drawn.setAttribute("role", "group");
  const now = new Map();
  for (const item of drawn.querySelectorAll("g[data-key]")) {
    const key = item.dataset.key;
    item.setAttribute("tabindex", "-1");
    item.setAttribute("role", !leaf(item) ? "group" : item.dataset.holder ? "button" : "img");
    item.setAttribute("aria-label", item.querySelector("title")?.textContent ?? key);
    now.set(key, item.dataset.holder ?? "");
    if (picture.before.size && picture.before.has(key) && picture.before.get(key) !== now.get(key)) item.classList.add("news");
  }
  picture.before = now;
  $("picture").replaceChildren(drawn);
  resize();
  if (!now.has(picture.at)) picture.at = [...now.keys()].find((key) => key.startsWith("cpu-")) ?? [...now.keys()][0] ?? "";
  const here = item(picture.at);
  here?.setAttribute("tabindex", "0");
  if (inside) here?.focus({ preventScroll: true });
}

const item = (key) => $("picture").querySelector(`g[data-key="${CSS.escape(key)}"]`);

function resize() {
  const drawn = $("picture").querySelector("svg");
  if (!drawn) return;
  const { width, height } = drawn.viewBox.baseVal;
  const fitting = ($("picture").clientWidth - 6) / width;
  const least = fitting >= .97 ? fitting : 1; // smaller, its digits run together; a little smaller beats scrolling
  const zoom = picture.zoom || Math.min(1.3, Math.max(least, fitting));
  drawn.style.width = `${width * zoom}px`;
  drawn.style.height = `${height * zoom}px`;
  $("fit").textContent = `${Math.round(zoom * 100)} %`;
}

function zoomBy(factor) {
  const drawn = $("picture").querySelector("svg");
  if (!drawn) return;
  const now = drawn.getBoundingClientRect().width / drawn.viewBox.baseVal.width;
  picture.zoom = Math.min(4, Math.max(.3, now * factor));
  resize();
}

// ---- pointing and walking

const leaf = (found) => !found.dataset.key.startsWith("node-");

function go(target) {
  if (!target) return;
  item(picture.at)?.setAttribute("tabindex", "-1");
  picture.at = target.dataset.key;
  target.setAttribute("tabindex", "0");
  target.focus();
  target.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// The nearest one of the same kind that lies in a direction; what lies aside counts thrice.
function neighbour(from, [right, down]) {
  const centre = (each) => {
    const box = each.querySelector("rect").getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const [x, y] = centre(from);
  let best = null, least = Infinity;
  for (const each of $("picture").querySelectorAll("g[data-key]")) {
    if (each === from || leaf(each) !== leaf(from)) continue;
    const [dx, dy] = centre(each).map((value, axis) => value - (axis ? y : x));
    const along = dx * right + dy * down, aside = Math.abs(dx * down) + Math.abs(dy * right);
    if (along > 1 && along + 3 * aside < least) [best, least] = [each, along + 3 * aside];
  }
  return best;
}

const WAYS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

function walk(event) {
  const here = event.target.closest?.("g[data-key]");
  if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = [...$("picture").querySelectorAll("g[data-key]")].filter((each) => leaf(each) === leaf(here));
  if (WAYS[event.key]) go(neighbour(here, WAYS[event.key]));
  else if (event.key === "Home") go(all[0]);
  else if (event.key === "End") go(all.at(-1));
  else if (event.key === "Escape") go(here.parentNode.closest('g[data-key^="node-"]'));
  else if (event.key === "Enter" || event.key === " ") open(here);
  else return;
  event.preventDefault();
}

function open(here) {
  const pod = holderOf(here);
  if (pod) location.hash = `pod/${pod.uid}`;
  else if (!leaf(here)) go(here.querySelector("g[data-key]"));
}

const holderOf = (here) => state.pods.find((pod) => pod.picture && String(pod.picture.number) === here.dataset.holder);

function tell(here) {
  const node = here.parentNode.closest?.('g[data-key^="node-"]');
  const where = node ? `, on NUMA node ${node.dataset.key.slice(5)}` : "";
  const more = holderOf(here) ? "; Enter explains it" : "";
  $("told").textContent = `${here.getAttribute("aria-label")}${where}${more}`;
}

// Everything that a pod holds stands out while its row, or anything of it, is pointed at.
function light(number) {
  for (const each of $("picture").querySelectorAll(".lit")) each.classList.remove("lit");
  if (number === undefined || number === null) return;
  for (const each of $("picture").querySelectorAll(`g[data-holder="${Number(number)}"]`)) each.classList.add("lit");
}

function startPicture() {
  const box = $("picture");
  box.addEventListener("keydown", walk);
  box.addEventListener("focusin", (event) => {
    const here = event.target.closest("g[data-key]");
    if (here) { tell(here); light(here.dataset.holder); }
  });
  box.addEventListener("focusout", () => light());
  box.addEventListener("mouseover", (event) => {
    const here = event.target.closest("g[data-key]");
    if (here) { tell(here); light(here.dataset.holder); }
  });
  box.addEventListener("mouseleave", () => light());
  box.addEventListener("click", (event) => {
    const here = event.target.closest("g[data-key]");
    if (here) { go(here); if (here.dataset.holder) open(here); }
  });
  $("larger").addEventListener("click", () => zoomBy(1.25));
  $("smaller").addEventListener("click", () => zoomBy(.8));
  $("fit").addEventListener("click", () => { picture.zoom = 0; resize(); });
  $("full").addEventListener("change", () => drawPicture().catch(lost));
  new ResizeObserver(resize).observe(box);
}
