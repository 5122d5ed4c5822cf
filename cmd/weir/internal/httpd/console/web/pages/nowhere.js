import { h } from "../dom.js";

/** nowhere is the page of an unknown address. */
export const nowhere = {
  title: "Not found",
  view: () => [h("h1", {}, "There is no such page"), h("p", {}, h("a", { href: "/" }, "The overview"), " leads to all pages.")],
};
