// Announcements for users of screen readers: a few important changes, and no figures.

/** announce has a screen reader say text. urgent interrupts what it is saying. */
export function announce(text, { urgent = false } = {}) {
  document.getElementById(urgent ? "urgent" : "polite").textContent = text;
}
