"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("sweep").textContent);

  // -- numbers ---------------------------------------------------------------------------------

  const unpack = ({ shape, bytes, data: text }) => {
    const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return { shape, values: bytes ? raw : new Float32Array(raw.buffer) };
  };
  // The part of an array at the first few indices.
  const part = ({ shape, values }, ...index) => {
    let size = values.length;
    let start = 0;
    index.forEach((i, axis) => {
      size /= shape[axis];
      start += i * size;
    });
    return values.subarray(start, start + size);
  };
  const weights = unpack(data.weights);
  const inputs = unpack(data.inputs);
  const answers = ["direct", "averaged", "expected"].map((name) => unpack(data[name]));
  const isImage = data.inputs.bytes;
  const steps = weights.shape[1];
  const middle = (steps - 1) / 2;
  const features = data.names.length;
  const probability = data.quantity === "probability";

  const range = (values) => {
    let low = Infinity;
    let high = -Infinity;
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return low <= high ? [low, high] : [0, 1];
  };
  const padded = ([low, high], share) => {
    const margin = (high - low) * share || Math.abs(high) * share || 1;
    return [low - margin, high + margin];
  };
  const number = (value, digits = 4) => {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    const plain = size === 0 || (size >= 1e-3 && size < 1e5);
    const text = plain ? String(+value.toPrecision(digits)) : value.toExponential(2);
    return text.replaceAll("-", "−");
  };
  const percent = (value) => `${(100 * value).toFixed(value > 0.0995 && value < 0.9995 ? 0 : 1)}\u00a0%`;

  // Fixed over all samples, so that a prediction that stays looks still.
  const scale = probability ? [0, 1] : range(answers.flatMap(({ values }) => range(values)));
  const place = (value) => 100 * Math.min(1, Math.max(0, (value - scale[0]) / (scale[1] - scale[0] || 1)));
  const reach = isImage ? 1 : Math.max(...range(inputs.values).map(Math.abs)) || 1;

  // -- what is shown -----------------------------------------------------------------------------

  const now = { generator: 0, sample: 0, step: middle, output: 0, playing: false };
  const view = { turn: -0.9, tilt: 0.45 };
  const predicted = (way, step = now.step) => part(answers[way], now.generator, now.sample, step);
  const weightAt = (step) => part(weights, now.generator)[step];

  const likeliest = (values) => values.indexOf(Math.max(...values));
  const apart = (a, b) => {
    let gap = 0;
    let size = 0;
    a.forEach((value, i) => {
      gap += (value - b[i]) ** 2;
      size += b[i] ** 2;
    });
    return Math.sqrt(gap) / Math.max(Math.sqrt(size), 1e-12);
  };

  // The prediction in words: a lead, the result, and a remark.
  const words = () => {
    const [direct, averaged, expected] = [0, 1, 2].map((way) => predicted(way));
    const target = data.targets[now.sample];
    const truth = target ? ` The sample's true ${probability ? "label" : "value"} is ${target}.` : "";
    if (probability) {
      const best = likeliest(direct);
      const same = best === likeliest(predicted(0, middle));
      return ["Predicted ", data.outputs[best], `, ${percent(direct[best])}, ${same ? "as" : "not as"} at w = 0.${truth}`];
    }
    if (data.quantity === "relative error") {
      return ["Off by ", percent(direct[0]), ` of what the symmetry asks for; ${percent(averaged[0])} averaged.`];
    }
    if (direct.length === 1) {
      return ["Predicted ", number(direct[0]), `; at w = 0 it is ${number(expected[0])}.${truth}`];
    }
    return ["Off by ", percent(apart(direct, expected)), ` of what the symmetry asks for; ${percent(apart(averaged, expected))} averaged.`];
  };

  // -- drawing -------------------------------------------------------------------------------------

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const HUES = [0, 1, 2, 3, 4, 5].map((i) => `hue${i}`);

  const prepare = (canvas) => {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const size = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `12px ${colour("sans")}`;
    pen.lineJoin = pen.lineCap = "round";
    return { pen, width, height };
  };
  const line = (pen, points, stroke, thickness, dash = []) => {
    pen.beginPath();
    points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.setLineDash(dash);
    pen.strokeStyle = stroke;
    pen.lineWidth = thickness;
    pen.stroke();
    pen.setLineDash([]);
  };
  const dot = (pen, [x, y], radius, fill, stroke) => {
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    if (fill) {
      pen.fillStyle = fill;
      pen.fill();
    }
    if (stroke) {
      pen.strokeStyle = stroke;
      pen.lineWidth = 1.8;
      pen.stroke();
    }
  };
  const cross = (pen, [x, y], size, stroke) => {
    line(pen, [[x - size, y], [x + size, y]], stroke, 1.6);
    line(pen, [[x, y - size], [x, y + size]], stroke, 1.6);
  };

  const frame = (generator, sample, step) => {
    const [channels, height, width] = inputs.shape.slice(3);
    const bytes = part(inputs, generator, sample, step);
    const picture = new ImageData(width, height);
    const pixels = width * height;
    for (let i = 0; i < pixels; i += 1) {
      for (let c = 0; c < 3; c += 1) picture.data[4 * i + c] = bytes[(channels === 3 ? c : 0) * pixels + i];
      picture.data[4 * i + 3] = 255;
    }
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width, height];
    canvas.getContext("2d").putImageData(picture, 0, 0);
    return canvas;
  };
  const drawImage = (canvas) => {
    const { pen, width, height } = prepare(canvas);
    const source = frame(now.generator, now.sample, now.step);
    const zoom = Math.min(width / source.width, height / source.height);
    const size = [source.width * zoom, source.height * zoom];
    // Small images are shown pixel by pixel, as the predictor sees them.
    pen.imageSmoothingEnabled = Math.max(source.width, source.height) > 32;
    pen.drawImage(source, (width - size[0]) / 2, (height - size[1]) / 2, ...size);
  };

  // Points of a sample as lists of features.
  const pointsOf = (values) => {
    const points = [];
    for (let i = 0; i < values.length; i += features) points.push(values.subarray(i, i + features));
    return points;
  };
  const pathsOf = (sample) => {
    const places = Array.from({ length: steps }, (_, step) => pointsOf(part(inputs, now.generator, sample, step)));
    return places[0].map((_, i) => places.map((points) => points[i]));
  };
  const everyPoint = function* (axis) {
    const mine = part(inputs, now.generator);
    for (let i = axis; i < mine.length; i += features) yield mine[i];
    if (!data.alike) return;
    for (const way of [0, 2]) {
      const theirs = part(answers[way], now.generator);
      for (let i = axis; i < theirs.length; i += features) yield theirs[i];
    }
  };
  const limits = new Map();
  const limitsOf = (axis) => {
    const key = `${now.generator}/${axis}`;
    if (!limits.has(key)) limits.set(key, range(everyPoint(axis)));
    return limits.get(key);
  };

  // From features to the canvas, for each kind of panel.
  const planeOf = (panel, width, height) => {
    let [x, y] = panel.map((axis) => padded(limitsOf(axis), 0.08));
    const spans = [x[1] - x[0], y[1] - y[0]];
    if (Math.max(...spans) < 2.5 * Math.min(...spans)) {
      const half = Math.max(...spans) / 2;
      [x, y] = [x, y].map(([low, high]) => [(low + high) / 2 - half, (low + high) / 2 + half]);
    }
    const edge = 22;
    const across = (value) => edge + ((value - x[0]) / (x[1] - x[0])) * (width - edge - 8);
    const up = (value) => height - edge - ((value - y[0]) / (y[1] - y[0])) * (height - edge - 8);
    return { x, y, across, up, to: (point) => [across(point[panel[0]]), up(point[panel[1]])], depth: () => 0 };
  };
  const spaceOf = (panel, width, height) => {
    const half = (0.44 * Math.min(width, height)) / Math.max(...panel.map((axis) => Math.max(...limitsOf(axis).map(Math.abs))), 1e-9);
    const [s, c, st, ct] = [Math.sin(view.turn), Math.cos(view.turn), Math.sin(view.tilt), Math.cos(view.tilt)];
    const seen = (point) => {
      const [x, y, z] = panel.map((axis) => point[axis]);
      const [right, away] = [c * x + s * y, -s * x + c * y];
      return [right, ct * z + st * away, ct * away - st * z];
    };
    return {
      to: (point) => [width / 2 + half * seen(point)[0], height / 2 - half * seen(point)[1]],
      depth: (point) => -seen(point)[2] / reach,
    };
  };

  const drawFrame = (pen, { x, y, across, up }, names, width, height) => {
    const faint = colour("line");
    if (x[0] < 0 && x[1] > 0) line(pen, [[across(0), up(y[0])], [across(0), up(y[1])]], faint, 1);
    if (y[0] < 0 && y[1] > 0) line(pen, [[across(x[0]), up(0)], [across(x[1]), up(0)]], faint, 1);
    pen.fillStyle = colour("quiet");
    pen.textAlign = "right";
    pen.fillText(names[0], width - 8, height - 7, width / 2);
    pen.save();
    pen.translate(14, 10);
    pen.rotate(-Math.PI / 2);
    pen.fillText(names[1], 0, 0, height / 2);
    pen.restore();
  };
  const drawTriad = (pen, { to }, panel) => {
    panel.forEach((axis, i) => {
      const tip = new Float32Array(features);
      tip[axis] = 1.02 * Math.max(...panel.map((other) => Math.max(...limitsOf(other).map(Math.abs))));
      line(pen, [to(new Float32Array(features)), to(tip)], colour("line"), 1.2);
      const [x, y] = to(tip);
      pen.fillStyle = colour("quiet");
      pen.textAlign = "center";
      pen.fillText(data.names[panel[i]], x, y - 5, 90);
    });
  };

  const drawPoints = (canvas, panel) => {
    const { pen, width, height } = prepare(canvas);
    const space = panel.length === 3;
    const map = (space ? spaceOf : planeOf)(panel, width, height);
    if (space) drawTriad(pen, map, panel);
    else drawFrame(pen, map, panel.map((axis) => data.names[axis]), width, height);
    const paths = pathsOf(now.sample);
    const alone = paths.length === 1;
    if (alone) {
      for (let other = 0; other < inputs.shape[1]; other += 1) {
        if (other !== now.sample) line(pen, pathsOf(other)[0].map(map.to), colour("line"), 1);
      }
    }
    const hue = (i) => colour(HUES[i % HUES.length]);
    pen.globalAlpha = alone ? 0.5 : 0.22;
    paths.slice(0, 12).forEach((path, i) => line(pen, path.map(map.to), hue(i), 1.4));
    pen.globalAlpha = 1;
    paths.slice(0, 12).forEach((path, i) => dot(pen, map.to(path[middle]), 3, null, hue(i)));
    const places = paths.map((path, i) => ({ point: path[now.step], hue: hue(i) }));
    places.sort((a, b) => map.depth(a.point) - map.depth(b.point));
    for (const { point, hue: fill } of places) {
      const near = 1 + 0.35 * map.depth(point);
      dot(pen, map.to(point), 6 * near, fill);
    }
    if (data.alike) {
      pointsOf(predicted(2)).forEach((point) => cross(pen, map.to(point), 6, colour("ink")));
      pointsOf(predicted(0)).forEach((point) => dot(pen, map.to(point), 6, null, colour("second")));
    }
  };
  const drawAgainstWeight = (canvas, [axis]) => {
    const { pen, width, height } = prepare(canvas);
    const along = part(weights, now.generator);
    const x = padded([along[0], along[steps - 1]], 0.04);
    const y = padded(limitsOf(axis), 0.08);
    const across = (value) => 22 + ((value - x[0]) / (x[1] - x[0])) * (width - 30);
    const up = (value) => height - 22 - ((value - y[0]) / (y[1] - y[0])) * (height - 30);
    drawFrame(pen, { x, y, across, up }, ["w", data.names[axis]], width, height);
    pathsOf(now.sample).slice(0, 12).forEach((path, i) => {
      const places = path.map((point, step) => [across(along[step]), up(point[axis])]);
      line(pen, places, colour(HUES[i % HUES.length]), 1.4);
      dot(pen, places[now.step], 7, colour(HUES[i % HUES.length]));
    });
  };

  const drawChart = () => {
    const { pen, width, height } = prepare(find("chart"));
    const along = part(weights, now.generator);
    const curves = answers.map((_, way) => Array.from(along, (_w, step) => predicted(way, step)[now.output]));
    // The spread of this output over all samples: what a change has to be compared with.
    const count = data.outputs.length;
    const all = function* () {
      for (const { values } of answers) for (let i = now.output; i < values.length; i += count) yield values[i];
    };
    const y = probability ? [-0.04, 1.04] : padded(range(all()), 0.06);
    const across = (value) => 44 + ((value - along[0]) / (along[steps - 1] - along[0] || 1)) * (width - 52);
    const up = (value) => height - 20 - ((value - y[0]) / (y[1] - y[0])) * (height - 28);
    const ends = probability ? [0, 1] : range(all());
    pen.fillStyle = colour("quiet");
    pen.font = `11px ${colour("sans")}`;
    for (const value of ends) {
      line(pen, [[44, up(value)], [width - 8, up(value)]], colour("line"), 1);
      pen.textAlign = "right";
      pen.fillText(number(value, 3), 38, up(value) + 4, 38);
    }
    pen.textAlign = "center";
    pen.fillText("w", width - 12, height - 5);
    pen.fillText("0", across(0), height - 5);
    const draw = (way, stroke, thickness, dash) =>
      line(pen, curves[way].map((value, step) => [across(along[step]), up(value)]), stroke, thickness, dash);
    draw(2, colour("quiet"), 1.5, [4, 4]);
    draw(1, colour("second"), 2);
    draw(0, colour("accent"), 2);
    const x = across(along[now.step]);
    line(pen, [[x, 6], [x, height - 18]], colour("quiet"), 1);
    dot(pen, [x, up(curves[1][now.step])], 4, colour("second"));
    dot(pen, [x, up(curves[0][now.step])], 4, colour("accent"));
  };

  // -- the page --------------------------------------------------------------------------------------

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const track = () => {
    const made = element("span", "track");
    made.append(element("i"));
    return made;
  };
  const fill = (bar, from, to) => {
    bar.style.left = `${Math.min(from, to)}%`;
    bar.style.width = `${Math.abs(to - from)}%`;
  };

  const slider = find("weight");
  const panels = () => (isImage ? [[]] : data.panels[now.generator]);
  let canvases = [];
  const watcher = new ResizeObserver(() => show());

  const look = (canvas) => {
    let last = null;
    canvas.classList.add("space");
    canvas.addEventListener("pointerdown", (event) => {
      last = [event.clientX, event.clientY];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      view.turn += (event.clientX - last[0]) / 120;
      view.tilt = Math.max(-1.5, Math.min(1.5, view.tilt + (event.clientY - last[1]) / 120));
      last = [event.clientX, event.clientY];
      show();
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (last = null));
  };
  const stage = () => {
    const box = find("stage");
    watcher.disconnect();
    canvases = panels().map((panel) => {
      const canvas = element("canvas");
      canvas.setAttribute("role", "img");
      const axes = panel.map((axis) => data.names[axis]).join(", ");
      canvas.setAttribute("aria-label", isImage ? "The moved image" : `The moved sample: ${axes}`);
      if (panel.length === 3) look(canvas);
      return canvas;
    });
    box.dataset.count = canvases.length;
    box.classList.toggle("image", isImage);
    const still = element("p", "nothing", "This generator moves nothing that can be drawn.");
    box.replaceChildren(...(canvases.length ? canvases : [still]));
    [...canvases, find("chart")].forEach((canvas) => watcher.observe(canvas));
  };

  const choose = (id, labels, name) => {
    const group = find(id);
    labels.forEach((label, i) => {
      const choice = element("label", "choice");
      const input = element("input");
      Object.assign(input, { type: "radio", name, value: i, checked: i === 0 });
      const hidden = typeof label === "string" ? null : element("span", "hidden", `${name} ${i + 1}`);
      choice.append(input, label, ...(hidden ? [hidden] : []));
      input.addEventListener("change", () => {
        now[name] = i;
        if (name === "generator") begin();
        show();
      });
      group.append(choice);
    });
    group.hidden = labels.length < 2;
  };

  const rows = data.outputs.map((name, i) => {
    const item = element("li");
    const button = element("button");
    button.type = "button";
    const bar = track();
    bar.append(element("u"), element("b"));
    button.append(element("span", "name", name), bar, element("span", "number"));
    button.title = name;
    button.addEventListener("click", () => {
      now.output = i;
      show();
    });
    item.append(button);
    return item;
  });
  const single = !isImage && inputs.shape[3] === 1;
  const values = single
    ? data.names.map((name) => {
        const item = element("li");
        const label = element("span", "name", name);
        label.title = name;
        item.append(label, track(), element("span", "number"));
        return item;
      })
    : [];

  const show = () => {
    canvases.forEach((canvas, i) => {
      const panel = panels()[i];
      if (isImage) drawImage(canvas);
      else if (panel.length === 1) drawAgainstWeight(canvas, panel);
      else drawPoints(canvas, panel);
    });
    drawChart();
    const w = number(weightAt(now.step), 3);
    slider.value = now.step;
    find("weight-value").textContent = `w = ${w}`;
    const [lead, result, remark] = words();
    const says = find("says");
    says.replaceChildren(lead, element("b", "", result), remark);
    slider.setAttribute("aria-valuetext", `w = ${w}. ${lead}${result}${remark}`);
    const [direct, averaged, expected] = [0, 1, 2].map((way) => predicted(way));
    rows.forEach((row, i) => {
      const button = row.firstChild;
      button.setAttribute("aria-pressed", String(i === now.output));
      fill(row.querySelector("i"), place(0), place(direct[i]));
      row.querySelector("b").style.left = `${place(averaged[i])}%`;
      row.querySelector("u").style.left = `${place(expected[i])}%`;
      row.querySelector(".number").textContent = probability ? direct[i].toFixed(3) : number(direct[i]);
    });
    if (single) {
      const point = part(inputs, now.generator, now.sample, now.step);
      values.forEach((item, i) => {
        fill(item.querySelector("i"), 50, 50 + (50 * point[i]) / reach);
        item.querySelector(".number").textContent = number(point[i], 3);
      });
    }
  };

  // A generator has its own range and its own pictures.
  const begin = () => {
    find("least").textContent = number(weightAt(0), 3);
    find("most").textContent = number(weightAt(steps - 1), 3);
    stage();
  };

  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const player = { at: middle, way: 1, last: 0 };
  const tick = (time) => {
    if (!now.playing) return;
    // A sweep takes four seconds; where motion is unwelcome, it takes a step twice a second.
    const pause = calm.matches ? 500 : 0;
    if (time - player.last >= pause) {
      const passed = Math.min(time - player.last, 500);
      player.at += player.way * (calm.matches ? steps / 12 : (passed / 4000) * (steps - 1));
      player.last = time;
      if (player.at >= steps - 1 || player.at <= 0) {
        player.at = Math.max(0, Math.min(steps - 1, player.at));
        player.way = -player.way;
      }
      now.step = Math.round(player.at);
      show();
    }
    requestAnimationFrame(tick);
  };
  const play = (on) => {
    now.playing = on;
    find("play").textContent = on ? "Pause" : "Play";
    find("play").setAttribute("aria-pressed", String(on));
    if (!on) return;
    player.at = now.step;
    player.last = performance.now();
    requestAnimationFrame(tick);
  };

  slider.max = steps - 1;
  slider.addEventListener("input", () => {
    play(false);
    now.step = Number(slider.value);
    show();
  });
  find("play").addEventListener("click", () => play(!now.playing));
  find("views").textContent = data.views;
  find("outputs").append(...rows);
  find("outputs").hidden = rows.length < 2;
  find("chart").classList.toggle("tall", rows.length < 2);
  find("marks").hidden = !data.alike;
  find("values").append(...values);
  find("values").hidden = !single;
  choose("generator-choice", Array.from({ length: weights.shape[0] }, (_, i) => `L${i + 1}`), "generator");
  choose("sample-choice", data.targets.map((_, i) => (isImage ? frame(0, i, middle) : String(i + 1))), "sample");
  if (probability) now.output = likeliest(predicted(0, middle));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show());
  begin();
  show();
})();
