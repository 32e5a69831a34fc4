import type { Json } from '../../../../src/schema/index.ts'
import type { Chance } from './fuzz.ts'

/** Nesting that the HTTP server of a gateway lets through, bodies being some levels deep by themselves. */
const deepest = 50

const oddTexts = [
  '',
  ' ',
  'text',
  'function',
  '[DONE]',
  'data: {}\n\n',
  '\u0000\u001f\u007f',
  '\ud800 lone \udfff',
  'ع\u202eab\u202c 日本語 🙂\u200d🙂',
  '\u2028\u2029\r\n',
  '"}],"finish_reason":"stop"',
  '__proto__',
  'x'.repeat(5000),
] as const

const oddNumbers = [0, -0, -1, 0.5, 1e21, 1e308, -1e308, Infinity, 2 ** 31, 2 ** 53, 4.9e-324] as const

const oddKeys = [
  '',
  'type',
  'role',
  'content',
  'id',
  'index',
  'model',
  '__proto__',
  'constructor',
  'toJSON',
  'ünï',
] as const

/** The same with a few things wrong in it, anywhere. */
export function mutatedJson(value: Json, chance: Chance): Json {
  let mutated = value
  for (let count = 1 + chance.below(3); count > 0; count -= 1) mutated = mutatedOnce(mutated, chance)
  return mutated
}

function mutatedOnce(value: Json, chance: Chance): Json {
  if (typeof value !== 'object' || value === null || chance.is(0.08)) return oddValue(value, chance)
  const entries: [string, Json][] = Object.entries(value).map(([key, inner]) => [key, inner ?? null])
  const chosen = chance.below(entries.length)
  const [key, inner] = entries[chosen] ?? ['', null]
  switch (chance.below(12)) {
    case 0:
      entries.splice(chosen, 1)
      break
    case 1:
      entries.splice(chosen, 0, [key, inner])
      break
    case 2:
      entries.splice(chosen, 1, [chance.pick(oddKeys), inner])
      break
    case 3:
      entries.push([chance.pick(oddKeys), oddValue(inner, chance)])
      break
    case 4:
      entries.reverse()
      break
    default:
      if (entries.length > 0) entries.splice(chosen, 1, [key, mutatedOnce(inner, chance)])
  }
  return Array.isArray(value) ? entries.map(([, element]) => element) : Object.fromEntries(entries)
}

function oddValue(value: Json, chance: Chance): Json {
  switch (chance.below(9)) {
    case 0:
      return null
    case 1:
      return chance.is(0.5)
    case 2:
      return chance.pick(oddNumbers)
    case 3:
      return chance.pick(oddTexts)
    case 4:
      return chance.pick<Json>([[], {}, [[]], [null], { type: 'text' }, { type: 5 }, [{ role: 'user', content: 'x' }]])
    case 5:
      return nested(value, 1 + chance.below(deepest), chance.is(0.5))
    case 6:
      return [value, value]
    case 7:
      return { value }
    default:
      return typeof value === 'string' ? value + chance.pick(oddTexts) : JSON.stringify(value)
  }
}

function nested(value: Json, depth: number, isList: boolean): Json {
  let inner = value
  for (let level = 0; level < depth; level += 1) inner = isList ? [inner] : { inner }
  return inner
}

/** JSON as text, in one of the spellings that mean the same; sometimes one of a value twice. */
export function spelled(value: Json, chance: Chance): string {
  // What is not finite has no name in JSON, but there is a number that reads as it.
  const text = JSON.stringify(value, (_key, inner: unknown) => (inner === Infinity ? '\u0001' : inner)) ?? 'null'
  const plain = text.replaceAll('"\\u0001"', '1e999')
  switch (chance.below(8)) {
    case 0:
      return `\n ${plain} \r\n`
    case 1:
      return plain.replaceAll('":', '"\t:\n ')
    case 2:
      // The key of the model, which a gateway looks for in the text, in another spelling; and one that is not it.
      return plain.startsWith('{"')
        ? `{"extra":{"model":"x"},${plain.slice(1).replace('"model"', '"mod\\u0065l"')}`
        : plain
    case 3:
      return plain.startsWith('{"') ? `{"model":"other","stream":false,${plain.slice(1)}` : plain
    default:
      return plain
  }
}

/** The same with some bytes other than they were. */
export function mutatedBytes(bytes: Buffer, chance: Chance): Buffer {
  if (bytes.length === 0) return Buffer.from('\n')
  const at = chance.below(bytes.length)
  const length = chance.below(Math.min(64, bytes.length - at) + 1)
  switch (chance.below(7)) {
    case 0:
      return bytes.subarray(0, at)
    case 1:
      return Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + length)])
    case 2:
      return Buffer.concat([bytes.subarray(0, at + length), bytes.subarray(at)])
    case 3: {
      const noise = Buffer.from(Array.from({ length: 1 + chance.below(8) }, () => chance.below(256)))
      return Buffer.concat([bytes.subarray(0, at), noise, bytes.subarray(at)])
    }
    case 4: {
      const swapped = Buffer.from(bytes)
      swapped[at] = chance.pick([0x0a, 0x0d, 0x22, 0x5c, 0x7b, 0x7d, 0x2c, 0x3a, 0x30])
      return swapped
    }
    default: {
      const flipped = Buffer.from(bytes)
      for (let count = 1 + chance.below(4); count > 0; count -= 1) {
        const place = chance.below(flipped.length)
        flipped[place] = (flipped[place] ?? 0) ^ (1 << chance.below(8))
      }
      return flipped
    }
  }
}

/** The same bytes, cut anywhere into pieces. */
export function pieces(bytes: Buffer, chance: Chance): Buffer[] {
  const cut: Buffer[] = []
  const longest = chance.pick([1, 7, 64, 1024, 1_000_000])
  // One byte at a time takes long where there are many.
  const most = bytes.length > 4000 ? Math.max(64, longest) : longest
  for (let at = 0; at < bytes.length;) {
    const length = 1 + chance.below(most)
    cut.push(bytes.subarray(at, at + length))
    at += length
  }
  return cut
}
