// Dark or light: the system's theme, or the user's choice, which this browser keeps.

const kept = "weir.theme";
const order = ["system", "light", "dark"];

/** theme returns the choice. */
export function theme() {
  const chosen = localStorage.getItem(kept);
  return order.includes(chosen) ? chosen : "system";
}

/** wear applies and keeps the choice. */
export function wear(chosen = theme()) {
  if (chosen === "system") localStorage.removeItem(kept);
  else localStorage.setItem(kept, chosen);
  document.documentElement.dataset.theme = chosen;
}

/** turn applies the next choice and returns it. */
export function turn() {
  const next = order[(order.indexOf(theme()) + 1) % order.length];
  wear(next);
  return next;
}
