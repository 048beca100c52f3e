const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  validatorUrl: null, // else the document is sent to a service of theirs
});
