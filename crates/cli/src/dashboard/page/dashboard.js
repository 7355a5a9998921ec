// Draws what `/events` tells. Texts come from outside: they are only ever set as text, never as markup.
"use strict";

const PARTS = [
  ["step", "step"], ["others", "waiting for ranks"], ["fetch", "fetch stall"],
  ["prep", "prep stall"], ["queue", "queue"], ["transfer", "transfer"],
];
const NAMES = ["step", "others", "fetch_stall", "prep_stall", "queue", "transfer"];
const POINTS = 600;
const SPAN_MS = 600_000;

const $ = (id) => document.getElementById(id);
const points = [];
let token = sessionStorage.getItem("forebay-token") || "";

// The token may come behind `#token=`: that part of an address is not sent to anybody. It does not stay there.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  token = given;
  sessionStorage.setItem("forebay-token", token);
  history.replaceState(null, "", location.pathname);
}

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

function number(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}

const time = (seconds) => (seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(1000 * seconds).toFixed(1)} ms`);

function bar(name, words, share, of) {
  const box = make("div", { class: "bar" });
  box.append(make("p", {}, make("b", { text: name }), make("span", { text: words })));
  if (share !== null) {
    const label = `${percent(share)} ${of}`;
    const fill = make("i");
    fill.style.width = `${100 * share}%`;
    const meter = { class: "track", role: "meter", "aria-label": `${name}: ${label}`, "aria-valuemin": 0, "aria-valuemax": 100 };
    box.append(make("div", { ...meter, "aria-valuenow": Math.round(100 * share) }, fill));
    box.append(make("small", { text: label }));
  }
  return box;
}

function fill(id, children, empty) {
  $(id).replaceChildren(...(children.length ? children : [make("p", { class: "empty", text: empty })]));
}

function table(id, head, rows, empty) {
  if (!rows.length) return fill(id, [], empty);
  const cells = (tag, row) => row.map((cell, at) =>
    make(at === 0 && tag === "td" ? "th" : tag, {
      text: cell, title: cell, ...(at === 0 && tag === "td" ? { scope: "row" } : {}),
      ...(tag === "th" ? { scope: "col" } : {}), ...(head[at].endsWith(" ") ? { class: "number" } : {}),
    }));
  const body = rows.map((row) => make("tr", {}, ...cells("td", row)));
  $(id).replaceChildren(make("table", {},
    make("thead", {}, make("tr", {}, ...cells("th", head.map((name) => name.trim())))), make("tbody", {}, ...body)));
}

function drawBands(now) {
  const known = points.some((point) => point[1]);
  $("bands-empty").hidden = known;
  for (const id of ["bands", "legend"]) $(id).style.display = known ? "" : "none";
  document.querySelector(".axis").hidden = !known;
  if (!known) return;
  const first = Math.max(points[0][0], now - SPAN_MS);
  const span = Math.max(now - first, 1000);
  const x = (at) => ((at - first) / span) * 1000;
  const shapes = PARTS.map(() => []);
  let run = [];
  const close = () => {
    if (run.length) {
      // A lone point is drawn as wide as one second.
      if (run.length === 1) run.push([run[0][0] + 1000, run[0][1]]);
      const sums = run.map(([, shares]) => { let sum = 0; return [0, ...shares.map((share) => (sum += share))]; });
      PARTS.forEach((_, part) => {
        const top = run.map(([at], i) => `${x(at).toFixed(1)},${(100 - 100 * sums[i][part + 1]).toFixed(2)}`);
        const low = run.map(([at], i) => `${x(at).toFixed(1)},${(100 - 100 * sums[i][part]).toFixed(2)}`).reverse();
        shapes[part].push(`M${top.join("L")}L${low.join("L")}Z`);
      });
    }
    run = [];
  };
  for (const [at, shares] of points) {
    if (at < first) continue;
    if (!shares || (run.length && at - run[run.length - 1][0] > 15_000)) close();
    if (shares) run.push([at, shares]);
  }
  close();
  const svg = $("bands");
  svg.setAttribute("viewBox", "0 0 1000 100");
  svg.replaceChildren(...shapes.map((paths, part) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", PARTS[part][0]);
    path.setAttribute("d", paths.join(""));
    return path;
  }));
  $("from").textContent = span >= 120_000 ? `${Math.round(span / 60_000)} min ago` : `${Math.round(span / 1000)} s ago`;
}

function drawLegend(bands) {
  $("legend").replaceChildren(...PARTS.map(([name, words], part) => {
    const share = bands ? bands[NAMES[part]] : 0;
    return make("li", {}, make("span", { class: `key ${name}`, "aria-hidden": "true" }),
      document.createTextNode(`${words} `), make("b", { text: percent(share) }));
  }));
  const words = PARTS.map(([, name], part) => `${name} ${percent(bands ? bands[NAMES[part]] : 0)}`);
  $("bands").setAttribute("aria-label", `Shares of time: ${words.join(", ")}`);
}

function drawJob(job) {
  const box = make("div", { class: "job" });
  const ranks = `${job.ranks_in_all} of ${job.world_size} ranks`;
  const rate = job.samples_per_second > 0 ? `${number(job.samples_per_second)} samples/s` : "";
  box.append(make("h3", {}, document.createTextNode(job.name), ...[job.label, ranks, rate].filter(Boolean).map((text) => make("span", { text }))));
  const late = job.straggler ? job.straggler.rank : -1;
  if (job.ranks.length) {
    box.append(make("ul", { class: "heat", "aria-label": `Ranks of ${job.name}` }, ...job.ranks.map((rank) => {
      const words = `rank ${rank.rank}: waits for data ${percent(rank.waits)} of its time, ${time(rank.own_seconds)} a step, step ${rank.step}`;
      const heat = make("i");
      heat.style.opacity = Math.min(1, rank.waits).toFixed(2);
      const classes = [rank.rank === late ? "late" : "", rank.silent_ms > 15_000 ? "silent" : ""].join(" ").trim();
      const cell = make("li", { title: words, ...(classes ? { class: classes } : {}) }, heat, make("span", { text: rank.rank }));
      cell.setAttribute("aria-label", rank.rank === late ? `${words}; late` : words);
      return cell;
    })));
  }
  if (job.straggler) box.append(make("p", { text: job.straggler.words }));
  return box;
}

function draw(state) {
  const bands = state.bands;
  $("sources").textContent = state.sources.join(", ");
  $("sources").title = state.sources.join(", ");
  $("n-samples").textContent = number(state.samples_per_second);
  $("n-stall").textContent = bands ? percent(bands.fetch_stall + bands.prep_stall + bands.queue + bands.transfer) : "–";
  $("n-others").textContent = bands ? percent(bands.others) : "–";
  $("n-workers").textContent = state.workers_in_all;
  $("n-jobs").textContent = state.jobs.length;
  $("faults").hidden = !state.faults.length;
  $("faults").replaceChildren(...state.faults.map((text) => make("li", { text })));
  const late = state.jobs.filter((job) => job.straggler);
  $("late").hidden = !late.length;
  const words = late.map((job) => `${job.name}: ${job.straggler.words}`).join("; ");
  if ($("late").textContent !== words) $("late").textContent = words;
  drawLegend(bands);
  drawBands(state.at_ms);
  fill("stages", state.stages.map((stage) => bar(stage.name, stage.rate, stage.fill, stage.fill_of)), "No stage tells its figures.");
  fill("tiers", state.tiers.map((tier) => {
    const full = tier.limit_bytes > 0 ? Math.min(1, tier.bytes / tier.limit_bytes) : null;
    const held = tier.limit_bytes > 0 ? `${size(tier.bytes)} of ${size(tier.limit_bytes)}, ` : "";
    return bar(tier.tier, `${held}${percent(tier.hits)} of payloads from here`, full, "full");
  }), "No cache.");
  fill("jobs", state.jobs.map(drawJob), "No job.");
  table("workers", ["worker", "address", "state", "queued ", "staged ", "batches/s ", "sent ", "heard "],
    state.workers.map((worker) => [worker.name, worker.address, worker.state, String(worker.queued_batches),
      size(worker.staged_bytes), worker.batches_per_second.toFixed(1), `${size(worker.bytes_per_second)}/s`,
      `${(worker.silent_ms / 1000).toFixed(1)} s ago`]), "No worker.");
  table("feeds", ["feed", "dataset", "jobs ", "samples/s ", "staged "],
    state.feeds.map((feed) => [feed.feed, feed.label, String(feed.jobs),
      feed.samples_per_second === null ? "" : number(feed.samples_per_second),
      feed.staged_bytes === null ? "" : `${size(feed.staged_bytes)} of ${size(feed.limit_bytes)}`]), "No feed.");
}

function heard(event, data) {
  if (event === "history") {
    points.splice(0, points.length, ...data);
    return;
  }
  const shares = data.bands ? NAMES.map((name) => data.bands[name]) : null;
  if (!points.length || points[points.length - 1][0] < data.at_ms) points.push([data.at_ms, shares, data.samples_per_second]);
  if (points.length > POINTS) points.shift();
  draw(data);
}

function standing(words, how) {
  $("live").className = how;
  if ($("live-words").textContent !== words) $("live-words").textContent = words;
}

// The stream of events is read by hand: an EventSource cannot show a token.
async function follow() {
  const answer = await fetch("/events", { headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store" });
  if (answer.status === 401) {
    sessionStorage.removeItem("forebay-token");
    return "door";
  }
  if (!answer.ok) throw new Error(`answered ${answer.status}`);
  standing("live", "on");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return "ended";
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const event = lines.find((line) => line.startsWith("event: "));
      const data = lines.find((line) => line.startsWith("data: "));
      if (event && data) heard(event.slice(7), JSON.parse(data.slice(6)));
    }
  }
}

async function run() {
  for (let pause = 1000; ; pause = Math.min(2 * pause, 15_000)) {
    try {
      const how = await follow();
      if (how === "door") {
        standing("wants a token", "off");
        $("door").hidden = false;
        $("token").focus();
        return;
      }
      pause = 500;
    } catch {
      // Told below: whoever looks cannot do more about it.
    }
    standing("connection lost, trying again", "off");
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("forebay-token", token);
  $("door").hidden = true;
  run();
});

run();
