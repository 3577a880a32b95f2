"use strict";
// Small things: elements without markup from texts (names are untrusted), sets of CPUs, sizes, times.

const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

// Texts without characters that are not seen: a right-to-left override would make a name read as another.
const plain = (text) => text.replace(/\p{C}/gu, "\ufffd");

// An element with attributes and children; texts become text nodes, nothing is ever parsed as markup.
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, plain(String(value)));
  made.append(...children.filter((child) => child !== null).map((child) => typeof child === "string" ? plain(child) : child));
  return made;
}

// A set of CPUs or a list: a line breaks after a comma, never inside a range, or two CPUs look like others.
const whole = (text) => text ? text.split(/(?<=,)/).flatMap((part) => [el("span", { class: "whole" }, part), el("wbr")]) : [];

// A sentence, whose ranges are not broken either.
const prose = (text) => text.split(/(\d+-\d+)/).map((part, place) => place % 2 ? el("span", { class: "whole" }, part) : part);

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// "0-3,8" -> [0, 1, 2, 3, 8]
function ids(text) {
  const found = [];
  for (const part of text.split(",").filter(Boolean)) {
    const [first, last = first] = part.split("-").map(Number);
    for (let id = first; id <= last; id += 1) found.push(id);
  }
  return found;
}

// Bytes with three digits, in the units of manifests: "62.8Gi".
function size(bytes) {
  const units = [" B", "Ki", "Mi", "Gi", "Ti", "Pi"];
  let value = bytes, unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${Number(value.toFixed(Math.max(0, 3 - String(Math.trunc(value)).length)))}${units[unit]}`;
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
const whose = (pod) => `${pod.namespace}/${pod.name}`;

// The sign of a pod as it is in the picture: colour, pattern and letters; nothing for a pod that is not in it.
function sign(picture) {
  if (!picture) return null;
  const { letter, number, colour } = picture;
  const made = svg("svg", { class: "nl swatch", viewBox: "0 0 30 16", "aria-hidden": "true" },
    svg("rect", { class: `c${colour}`, width: 30, height: 16, rx: 3 }),
    svg("rect", { fill: `url(#nl-p${number % styles})`, width: 30, height: 16, rx: 3 }));
  const text = svg("text", { class: `m b halo i${colour} h${colour}`, x: 15, y: 12, "font-size": 11 });
  text.textContent = letter;
  made.append(text);
  return made;
}
