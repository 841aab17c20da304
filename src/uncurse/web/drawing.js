// What the pages share: elements, numbers, marks, charts, differences between texts. A page adds its own script after
// this one; its data are the JSON in #data. Both are one module, so nothing here is global.

// ---- elements

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const SVG = document.querySelector("svg").namespaceURI;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function options(select, entries, value) {
  select.replaceChildren(...entries.map(([key, label]) => html("option", { value: key, selected: key === value }, label)));
}

/** Radio buttons that look like one switch. */
function switcher(host, title, entries, value, change) {
  const name = `switch-${title.replaceAll(" ", "-")}`;
  const radios = entries.map(([key, label]) =>
    html("label", {}, html("input", { type: "radio", name, value: key, checked: key === value }), html("span", {}, label)));
  const set = html("fieldset", { class: "switch" }, html("legend", {}, title), html("div", {}, ...radios));
  set.addEventListener("change", (event) => change(event.target.value));
  host.append(set);
}

// ---- words and numbers

const CERTIFICATES = {
  GLOBAL: ["global", "no other sequence within the maximum length scores higher"],
  BEAM: ["beam", "no continuation of this search could have scored higher"],
  NONE: ["none", "a continuation of this search could have scored higher"],
  TRUNCATED: ["cut off", "nothing finished"],
};

const FORMATS = [0, 1, 2, 3, 4].map((digits) =>
  new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const fixed = (value, digits) => FORMATS[digits].format(value).replace("-", "−");
const plural = (count, word) => `${fixed(count, 0)} ${word}${count === 1 ? "" : "s"}`;
const capital = (text) => text[0].toUpperCase() + text.slice(1);

// ---- marks

function shapePath(shape, r) {
  const ring = (count, turn, radius) => "M" + Array.from({ length: count }, (_, place) => {
    const angle = turn + (2 * Math.PI * place) / count, reach = radius(place);
    return `${(reach * Math.sin(angle)).toFixed(2)},${(-reach * Math.cos(angle)).toFixed(2)}`;
  }).join("L") + "Z";
  const a = r * 0.4;
  switch (shape) {
    case "square": return ring(4, Math.PI / 4, () => r * 1.25);
    case "diamond": return ring(4, 0, () => r * 1.3);
    case "up": return ring(3, 0, () => r * 1.35);
    case "down": return ring(3, Math.PI, () => r * 1.35);
    case "hexagon": return ring(6, 0, () => r * 1.2);
    case "star": return ring(10, 0, (place) => r * (place % 2 ? 0.65 : 1.5));
    case "plus": return `M${-a},${-r}H${a}V${-a}H${r}V${a}H${a}V${r}H${-a}V${a}H${-r}V${-a}H${-a}Z`;
    default: return `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`;
  }
}

const marker = (look, x, y, r = 3.4) =>
  svg("path", { d: shapePath(look.shape, r), transform: `translate(${x},${y})`, class: look.open ? "mark open" : "mark" });

function coloured(element, look) {
  element.style.color = look.colour;
  return element;
}

function swatch(look, line = true) {
  return coloured(svg("svg", { width: line ? 28 : 14, height: 14, class: "swatch", "aria-hidden": "true" },
    line ? svg("path", { d: "M0,7H28", class: "line", "stroke-dasharray": look.dash }) : null,
    marker(look, line ? 14 : 7, 7)), look);
}

// ---- scales

const linear = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

function ticksOf(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) * power;
  const digits = [0, 1, 2, 3].find((each) => Math.abs(step * 10 ** each - Math.round(step * 10 ** each)) < 1e-6) ?? 4;
  const first = Math.ceil(low / step - 1e-9);
  const values = Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, place) => (first + place) * step);
  return { values, write: (value) => fixed(value, digits) };
}

function decades(low, high) {
  const found = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    found.push(...[1, 2, 5].map((each) => each * power).filter((each) => each >= low && each <= high));
  }
  return found;
}

/** From values to pixels, with the values that deserve a tick. */
function scaleOf(kind, values, from, to) {
  const low = Math.min(...values), high = Math.max(...values);
  if (kind === "even") {
    const inset = values.length > 1 ? 0 : (to - from) / 2;
    return { at: (value) => linear(0, values.length - 1, from + inset, to)(values.indexOf(value)), ticks: values };
  }
  if (kind === "linear" || kind === "whole") {
    const ticks = ticksOf(low, high, Math.max(3, (to - from) / 80)).values;
    return { at: linear(low, high, from, to), ticks: kind === "whole" ? ticks.filter(Number.isInteger) : ticks };
  }
  const at = linear(Math.log(low), Math.log(high), from, to);
  return { at: (value) => at(Math.log(value)), ticks: kind === "log" ? values : decades(low, high) };
}

function yDomain(values, span, reference) {
  let low = Math.min(...values), high = Math.max(...values);
  if (reference !== undefined && reference > low - (high - low) && reference < high + (high - low)) {
    [low, high] = [Math.min(low, reference), Math.max(high, reference)];
  }
  const pad = Math.max((high - low) * 0.08, (span - (high - low)) / 2, 0);
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}

// ---- charts

/** A chart in a figure: lines or points, a tooltip for pointer and arrow keys, and its numbers as a table. */
class Chart {
  #canvas = html("div", { class: "canvas", tabindex: "0", role: "group", "aria-roledescription": "chart" });
  #tip = html("div", { class: "tip", hidden: true });
  #numbers = html("details", { class: "numbers" }, html("summary", {}, "Numbers"));
  #cursor = svg("g", { class: "cursor" });
  #spec = null;
  #stops = [];
  #current = -1;
  #width = 0;
  #make;

  constructor(host, make, numbers = true) {
    this.#make = make;
    host.append(this.#canvas, ...(numbers ? [this.#numbers] : []));
    this.#numbers.addEventListener("toggle", () => this.#tabulate());
    this.#canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.#canvas.addEventListener("pointerdown", (event) => this.#point(event, true));
    // A finger that lifts has left, too; what it has shown stays until the chart loses the focus.
    this.#canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.#hide());
    this.#canvas.addEventListener("blur", () => this.#hide());
    this.#canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#canvas.clientWidth !== this.#width && this.draw()).observe(this.#canvas);
  }

  draw() {
    const spec = (this.#spec = this.#make());
    const width = (this.#width = this.#canvas.clientWidth), height = spec.height ?? 320;
    if (!width) return;
    this.#hide();
    this.#canvas.setAttribute("aria-label", `${spec.label}. Arrow keys read the values.`);
    const points = spec.series.flatMap((series) => series.points);
    if (!points.length) {
      this.#stops = [];
      this.#canvas.replaceChildren(html("p", { class: "nothing" }, "There is nothing to show."));
      return;
    }
    const slanted = spec.x.slant && width / spec.x.values.length < 84;
    const box = { left: 46, right: width - 20, top: 14 + (spec.room?.above ?? 0), bottom: height - (slanted ? 74 : 42) };
    const values = spec.x.values ?? [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
    const x = scaleOf(spec.x.kind, values, box.left + 8, box.right - 6);
    const domain = yDomain([...points.map((point) => point.y), ...(spec.y.values ?? [])], spec.y.span ?? 5, spec.y.reference);
    const y = linear(...domain, box.bottom - 4 - (spec.room?.below ?? 0), box.top);
    const root = svg("svg", { width, height, "aria-hidden": "true" });
    root.append(...yAxis(domain, y, box, spec.y), ...xAxis(x, box, spec.x, slanted, height));
    root.append(...(spec.decorate?.(x.at, y, box) ?? []));
    root.append(this.#cursor, ...spec.series.map((series) => drawSeries(series, x.at, y)));
    root.append(...(spec.overlay?.(x.at, y, box) ?? []));
    this.#stops = spec.near
      ? points.map((point) => ({ left: x.at(point.x), top: y(point.y), point }))
      : values.map((value) => ({ left: x.at(value), value, box }));
    this.#canvas.replaceChildren(root, this.#tip);
    this.#tabulate();
  }

  #content(stop) {
    if (stop.point) return stop.point.tip;
    const found = this.#spec.series.flatMap((series) =>
      series.points.filter((point) => point.x === stop.value).map((point) => ({ series, point })));
    found.sort((a, b) => b.point.y - a.point.y);
    return {
      head: this.#spec.head(stop.value),
      rows: found.map(({ series, point }) => ({ look: series.look, label: series.label, value: this.#spec.write(point.y) })),
    };
  }

  #show(place, spoken) {
    this.#current = place;
    const stop = this.#stops[place], content = this.#content(stop);
    this.#cursor.replaceChildren(stop.point
      ? svg("circle", { cx: stop.left, cy: stop.top, r: 8 })
      : svg("line", { x1: stop.left, x2: stop.left, y1: stop.box.top, y2: stop.box.bottom }));
    this.#tip.replaceChildren(html("strong", {}, content.head), html("table", {}, html("tbody", {}, ...content.rows.map((row) =>
      html("tr", {}, html("td", {}, row.look ? swatch(row.look) : ""), html("td", {}, row.label), html("td", {}, row.value))))));
    this.#tip.hidden = false;
    const room = this.#width - this.#tip.offsetWidth, beside = stop.left + 16;
    this.#tip.style.left = `${Math.max(0, Math.min(room, beside <= room ? beside : stop.left - 16 - this.#tip.offsetWidth))}px`;
    // On a narrow screen the tooltip would hide the lines: it goes below them.
    const narrow = this.#width < 480 && content.rows.length > 3;
    const below = narrow ? this.#canvas.clientHeight : Math.max(0, (stop.top ?? 30) - 22);
    this.#tip.style.top = `${below}px`;
    this.#spec.shown?.(stop.point);
    if (spoken) {
      byId("spoken").textContent = `${content.head}: ${content.rows.map((row) => `${row.label} ${row.value}`).join(", ")}`;
    }
  }

  #hide() {
    this.#tip.hidden = true;
    this.#cursor.replaceChildren();
  }

  #point(event, picked = false) {
    if (!this.#stops.length) return;
    const frame = this.#canvas.getBoundingClientRect();
    const left = event.clientX - frame.left, top = event.clientY - frame.top;
    const far = (stop) => Math.hypot(stop.left - left, stop.point ? stop.top - top : 0);
    const nearest = this.#stops.reduce((best, stop, place) => (far(stop) < far(this.#stops[best]) ? place : best), 0);
    if (nearest !== this.#current || this.#tip.hidden) this.#show(nearest, false);
    if (picked) this.#pick();
  }

  #key(event) {
    const last = this.#stops.length - 1;
    const next = { ArrowRight: this.#current + 1, ArrowLeft: this.#current < 0 ? last : this.#current - 1, Home: 0, End: last };
    if (event.key === "Escape") this.#hide();
    if (!(event.key in next) || last < 0) return;
    event.preventDefault();
    this.#show(Math.max(0, Math.min(last, next[event.key])), true);
    this.#pick();
  }

  /** Clicking and arrow keys choose what pointing only shows. */
  #pick() {
    const stop = this.#stops[this.#current];
    this.#spec.picked?.(stop.point ?? stop.value);
  }

  #tabulate() {
    const spec = this.#spec;
    if (!this.#numbers.open || !spec) return;
    const rows = spec.near
      ? spec.series.flatMap((series) => series.points.map(({ tip }) => [tip.head, ...tip.rows.map((row) => row.value)]))
      : this.#stops.map(({ value }) => [spec.head(value), ...spec.series.map((series) => {
        const point = series.points.find((each) => each.x === value);
        return point ? spec.write(point.y) : "–";
      })]);
    const head = spec.near ? ["", ...(spec.series[0]?.points[0].tip.rows.map((row) => row.label) ?? [])]
      : ["", ...spec.series.map((series) => series.label)];
    this.#numbers.replaceChildren(this.#numbers.firstChild,
      html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": spec.label }, tableOf(head, rows)));
  }
}

function tableOf(head, rows) {
  return html("table", {}, html("thead", {}, html("tr", {}, ...head.map((cell) => html("th", { scope: "col" }, cell)))),
    html("tbody", {}, ...rows.map(([first, ...rest]) =>
      html("tr", {}, html("th", { scope: "row" }, first), ...rest.map((cell) => html("td", { class: "number" }, cell))))));
}

function drawSeries(series, x, y) {
  const group = coloured(svg("g", { class: "series", "data-name": series.name }), series.look);
  if (series.line !== false) {
    // What is known only from a step on rises at that step, not on the way to it.
    const to = (point) => (series.stepped ? `H${x(point.x).toFixed(1)}V${y(point.y).toFixed(1)}` : `L${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`);
    const path = series.points.map((point, place) => (place ? to(point) : `M${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`)).join("");
    group.append(svg("path", { d: path, class: "line", "stroke-dasharray": series.look.dash }));
  }
  group.append(...series.points.map((point) => {
    const mark = marker(series.look, x(point.x), y(point.y), point.size);
    if (point.ring) mark.classList.add("ring");
    return mark;
  }));
  return group;
}

function yAxis(domain, y, box, axis) {
  const ticks = ticksOf(...domain, Math.max(3, (box.bottom - box.top) / 38));
  const lines = ticks.values.flatMap((value) => [
    svg("line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value), class: "grid" }),
    svg("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, ticks.write(value) + (axis.percent ? "%" : "")),
  ]);
  if (axis.reference > domain[0] && axis.reference < domain[1]) {
    lines.push(svg("line", { x1: box.left, x2: box.right, y1: y(axis.reference), y2: y(axis.reference), class: "reference" }));
  }
  return lines;
}

function xAxis(x, box, axis, slanted, height) {
  const write = axis.write ?? ((value) => fixed(value, 0));
  const all = x.ticks.map((value) => ({ left: x.at(value), text: write(value), first: value === axis.prefer }));
  const gap = (a, b) => Math.abs(a.left - b.left) - (slanted ? 16 : 3.6 * (a.text.length + b.text.length) + 6);
  // The last beam size is the one readers look for, then that of the sentences: they keep their labels, others give way.
  const kept = [];
  for (const tick of [all.at(-1), ...all.filter((each) => each.first), ...all]) {
    if (kept.every((each) => gap(tick, each) > 0)) kept.push(tick);
  }
  return [
    svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }),
    ...all.map(({ left }) => svg("line", { x1: left, x2: left, y1: box.bottom, y2: box.bottom + 4, class: "axis" })),
    ...kept.map(({ left, text }) => svg("text", slanted
      ? { transform: `translate(${left + 4},${box.bottom + 16}) rotate(-35)`, "text-anchor": "end" }
      : { x: left, y: box.bottom + 18, "text-anchor": "middle" }, text)),
    svg("text", { x: box.right, y: height - 4, "text-anchor": "end", class: "title" }, axis.label),
  ];
}

// ---- candidates

/** Candidates by length and log-probability, marked by who chose them; `read` is told which one is pointed at. */
function candidateChart({ references = [], expected_length: expected, max_length: max }, points, lookOf, read) {
  const chosen = points.filter((point) => point.by.length);
  const lengths = [...points.map((point) => point.x), ...references, max, expected ?? max];
  const place = (point) => chosen.filter((each) => each.x === point.x).sort((a, b) => b.y - a.y).indexOf(point);
  const line = (x, box, value, label, kind, row) => [
    svg("line", { x1: x(value), x2: x(value), y1: 2, y2: box.bottom, class: kind }),
    svg("text", { x: x(value) - 5, y: 11 + 14 * row, "text-anchor": "end", class: "name" }, `${label} ${fixed(value, value % 1 ? 1 : 0)}`)];
  const most = Math.max(...chosen.map((point) => point.by.length), 0);
  return {
    label: "Candidates by length and log-probability", height: 340, near: true, shown: (point) => point && read(point),
    room: { above: 26 + 11 * most, below: 14 },
    series: [false, true].map((told) => ({
      label: "", line: false, look: { colour: told ? "var(--ink)" : "var(--soft)", shape: "circle", open: !told },
      points: points.filter((point) => (point.text !== null) === told),
    })),
    x: {
      kind: "whole", label: references.length ? "length in tokens; ticks: references" : "length in tokens",
      values: [Math.min(...lengths) - 1, Math.max(...lengths)],
    },
    y: { span: 2 },
    decorate: (x, y, box) => [
      ...(expected === null ? [] : line(x, box, expected, "expected", "expected-length", 0)),
      ...line(x, box, max, "max length", "max-length", 1),
      ...references.map((length) => x(length)).map((left) =>
        svg("line", { x1: left, x2: left, y1: box.bottom - 12, y2: box.bottom, class: "tick" })),
    ],
    overlay: (x, y) => chosen.map((point) => {
      // Choices of one length would cover each other: the likeliest grows upwards, the next to the right, others down.
      const [dx, dy] = [[0, -1], [1, 0], [0, 1]][Math.min(place(point), 2)], [left, top] = [x(point.x), y(point.y)];
      const marks = point.by.map((name, rank) => {
        const reach = 13 + 11 * rank;
        return coloured(svg("g", {}, marker(lookOf(name), left + dx * reach, top + dy * reach, 3.8)), lookOf(name));
      });
      const end = 2 + 11 * point.by.length;
      return svg("g", {}, svg("line", { x1: left, y1: top, x2: left + dx * end, y2: top + dy * end, class: "stem" }), ...marks);
    }),
  };
}

// ---- differences between texts

const HAN = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}";
const WORD = new RegExp(`(?:[${HAN}]|[^\\s${HAN}]+)\\s*`, "gu"); // with the space that follows it
const wordsOf = (text) => text.match(WORD) ?? [];

/** Runs of words that both texts have, that only the second has, and that only the first has. */
function compare(first, second) {
  const same = (i, j) => first[i].trim() === second[j].trim();
  const table = Array.from({ length: first.length + 1 }, () => new Uint16Array(second.length + 1));
  for (let i = first.length - 1; i >= 0; i--) {
    for (let j = second.length - 1; j >= 0; j--) {
      table[i][j] = same(i, j) ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const runs = [];
  const put = (kind, word) => (runs.at(-1)?.kind === kind ? (runs.at(-1).text += word) : runs.push({ kind, text: word }));
  for (let [i, j] = [0, 0]; i < first.length || j < second.length;) {
    if (i < first.length && j < second.length && same(i, j)) { put("same", second[j++]); i++; }
    else if (i < first.length && (j === second.length || table[i + 1][j] >= table[i][j + 1])) put("gone", first[i++]);
    else put("new", second[j++]);
  }
  return runs;
}

function marked(text, against) {
  if (!text) return [html("em", { class: "empty" }, "nothing: an empty output")];
  if (against === null || against === text) return [text];
  return compare(wordsOf(against), wordsOf(text)).flatMap((run) => {
    const words = run.text.trimEnd();
    return [run.kind === "same" ? words : html(run.kind === "new" ? "ins" : "del", {}, words), words === run.text ? "\u200b" : " "];
  });
}
