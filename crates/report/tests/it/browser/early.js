// Stands before everything else in a checked page and remembers what goes wrong.
const failures = [];
addEventListener("error", (event) => failures.push(`page error: ${event.message || event.target.outerHTML.slice(0, 80)}`), true);
addEventListener("unhandledrejection", (event) => failures.push(`rejected: ${event.reason}`));
addEventListener("securitypolicyviolation", (event) => failures.push(`refused: ${event.blockedURI}`));
console.error = (...words) => failures.push(`console: ${words.join(" ")}`);
