"use strict";
// Pointing at a curve, or the arrow keys on one, show the values at that time in all panels. Without this the page
// shows the last values, and all the rest.
(() => {
  const data = JSON.parse(document.getElementById("series").textContent);
  const panels = [...document.querySelectorAll(".panel")];
  const readout = document.getElementById("readout");
  if (!panels.length || !data.series) return;
  const idle = readout.textContent;
  const span = data.elapsed || 1;
  let at = 1;

  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  };

  const clock = (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    const two = (number) => String(number).padStart(2, "0");
    if (whole >= 86400) return `${Math.floor(whole / 86400)}d${two(Math.floor(whole / 3600) % 24)}h`;
    if (whole >= 3600) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole / 60) % 60)}m`;
    return whole >= 60 ? `${Math.floor(whole / 60)}m${two(whole % 60)}s` : `${whole}s`;
  };

  const show = (part) => {
    at = Math.min(Math.max(part, 0), 1);
    const x = at * span;
    const near = Math.max(span / 100, 1.5); // seconds: farther away, nothing is known of that time
    for (const panel of panels) {
      const series = data.series[panel.dataset.metric];
      const index = nearest(series.x, x);
      const known = Math.abs(series.x[index] - x) <= near;
      const cross = panel.querySelector(".cross"), dot = panel.querySelector(".dot");
      const area = panel.querySelector(".area");
      cross.setAttribute("x1", `${100 * at}%`);
      cross.setAttribute("x2", `${100 * at}%`);
      cross.setAttribute("visibility", "visible");
      dot.setAttribute("cx", `${100 * series.x[index] / span}%`);
      dot.setAttribute("cy", `${area.dataset.height * (1 - series.y[index])}`);
      dot.setAttribute("visibility", known ? "visible" : "hidden");
      panel.querySelector(".value").textContent = known ? series.text[index] : "–";
    }
    const index = data.steps.x.length ? nearest(data.steps.x, x) : -1;
    const step = index >= 0 && Math.abs(data.steps.x[index] - x) <= near ? `, step ${data.steps.step[index]}` : "";
    readout.textContent = `At ${clock(x)}${step}`;
  };

  const hide = () => {
    for (const panel of panels) {
      for (const mark of panel.querySelectorAll(".cross, .dot")) mark.setAttribute("visibility", "hidden");
      const value = panel.querySelector(".value");
      value.textContent = value.dataset.last;
    }
    readout.textContent = idle;
  };

  for (const panel of panels) {
    const area = panel.querySelector(".area");
    const point = (event) => {
      const box = area.getBoundingClientRect();
      show((event.clientX - box.left) / (box.width || 1));
    };
    area.addEventListener("pointermove", point);
    area.addEventListener("pointerdown", point);
    area.addEventListener("pointerleave", hide);
    panel.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? 0.1 : 0.01;
      const moves = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: 1 };
      if (event.key === "Escape") hide();
      else if (event.key in moves) { show(moves[event.key]); event.preventDefault(); }
    });
    panel.addEventListener("blur", hide);
  }
  addEventListener("beforeprint", () => { hide(); for (const one of document.querySelectorAll("details")) one.open = true; });
})();
