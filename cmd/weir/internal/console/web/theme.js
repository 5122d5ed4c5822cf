// Dark or light: as the system says, or as somebody has chosen here. The choice stays in this browser.

const kept = "weir.theme";
const order = ["system", "light", "dark"];

/** theme is what was chosen. */
export function theme() {
  const chosen = localStorage.getItem(kept);
  return order.includes(chosen) ? chosen : "system";
}

/** wear puts the choice in force. */
export function wear(chosen = theme()) {
  if (chosen === "system") localStorage.removeItem(kept);
  else localStorage.setItem(kept, chosen);
  document.documentElement.dataset.theme = chosen;
}

/** turn goes on to the next choice and tells it. */
export function turn() {
  const next = order[(order.indexOf(theme()) + 1) % order.length];
  wear(next);
  return next;
}
