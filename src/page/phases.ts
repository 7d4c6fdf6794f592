// The phases of a serving engine's steps.

/** The titles of phases, in the order in which they are shown. */
export const SERVING_PHASES: Record<string, string> = {
  prefill: "Prefill",
  decode: "Decode",
  mixed: "Prefill and decode",
  diffusion: "Diffusion",
};
