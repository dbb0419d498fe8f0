export const model = { id: "model", question: "What is this model told?", mount() { return () => {}; } };
