// Numbers that are drawn from a seed, the same in every browser: Park and Miller's generator (1988, Communications of
// the ACM 31, 1192-1201; multiplier 48271), whose products a double holds exactly.

const MODULUS = 2 ** 31 - 1;
const MULTIPLIER = 48271;
const SKIPPED = 8; // neighbouring seeds begin alike

// Uniform numbers between 0 and 1, and normal ones by Box and Muller's way.
export function seededDraw(seed) {
  let state = (Math.abs(Math.trunc(seed)) % (MODULUS - 1)) + 1;
  const uniform = () => {
    state = (state * MULTIPLIER) % MODULUS;
    return state / MODULUS;
  };
  for (let drawn = 0; drawn < SKIPPED; drawn++) uniform();
  const normal = () => {
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    return radius * Math.cos(2 * Math.PI * uniform());
  };
  return { uniform, normal };
}
