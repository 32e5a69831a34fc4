import { hash32 } from '../../kit/index.ts'

/** A number in [0, 1) that depends on nothing but its arguments: no generator in the simulator has a state. */
export function draw(base: number, purpose: string, index = 0): number {
  return hash32(base, purpose, index) / 0x1_0000_0000
}

/** A lognormal factor with mean 1 and the given relative standard deviation. */
export function drawFactor(base: number, purpose: string, spread: number): number {
  if (spread === 0) return 1
  const variance = Math.log1p(spread * spread)
  const radius = Math.sqrt(-2 * Math.log(1 - draw(base, purpose, 1)))
  const normal = radius * Math.cos(2 * Math.PI * draw(base, purpose, 2))
  return Math.exp(normal * Math.sqrt(variance) - variance / 2)
}
