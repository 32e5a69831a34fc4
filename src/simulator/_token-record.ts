import { hash32 } from '../kit/index.ts'
import { TokenList, writePrompt } from './_token-stream.ts'
import type { Message, RoutedExperts } from '../schema/index.ts'

export function promptIds(messages: readonly Message[], toolsText: string): Int32Array {
  const list = new TokenList()
  writePrompt(list, messages, toolsText)
  return Int32Array.from(list.tokens, (token) => token.id)
}

/**
 * Log-probabilities, mostly close to 0 and now and then far below, as of a model that is sure of itself. Multiples of 1/256 are
 * exact as 32-bit floats and short as JSON, so they are the same numbers in process and over the wire.
 */
export function logprobsOf(count: number, base: number): Float32Array {
  const logprobs = new Float32Array(count)
  for (let index = 0; index < count; index += 1) {
    const luck = hash32(base, index) / 0x1_0000_0000
    // Never -0: it would come back from JSON as 0.
    const steps = Math.floor(luck ** 4 * 4 * 256)
    logprobs[index] = steps === 0 ? 0 : -steps / 256
  }
  return logprobs
}

const expertCount = 128

/** The experts of each sampled token in each layer: neighbours out of 128. `mixture` is `<layers>x<experts per token>`. */
export function expertsOf(mixture: string, tokens: number, base: number): RoutedExperts {
  const [layers = 0, perToken = 0] = mixture.split('x').map(Number)
  const experts = new Uint8Array(tokens * layers * perToken)
  for (let row = 0; row < tokens * layers; row += 1) {
    const first = hash32(base, 'expert', row)
    for (let rank = 0; rank < perToken; rank += 1) experts[row * perToken + rank] = (first + rank) % expertCount
  }
  return { shape: [tokens, layers, perToken], experts }
}
