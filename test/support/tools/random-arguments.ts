import { readLoosely } from '../../../src/tools/repair/loose-json.ts'
import { seededRandom } from '../../../src/kit/index.ts'

/**
 * Reads random texts as the arguments of calls, after it has written each of them down: whoever reads along knows which one
 * it does not come back from. Started with a seed and how many texts there are to be.
 */

const brackets = ['{', '}', '[', ']', '(', ')', ',', ':', ';', '+', '=', '/', '//', '/*', '*/', '...', '```', '```json']
const quotes = ['"', '"', "'", '`', '\u201c', '"""', '&quot;', '\\', '\\"', '\\n', '\\u12', '\\x', '\n', ' ', '\u00a0']
const words = ['a', 'bc', '1', '-2.5', 'true', 'None', 'f(', "it's", 'https://x.y/', '"a"', '"b":', '"key": ', '"x", ']
const tokens = [...brackets, ...quotes, ...words]
const whole = {
  a: [1, 'two, [3]', { b: '{1, [2]}' }],
  q: 'say "hi"',
  code: 'print("x", rows[1:])\nit\'s',
  n: null,
  z: '[1]',
}

const [seed = '', count = ''] = process.argv.slice(2)
const random = seededRandom(Number(seed))
for (let index = 0; index < Number(count); index += 1) {
  const text = index % 2 === 0 ? randomTokens() : damaged(JSON.stringify(whole))
  process.stdout.write(`${JSON.stringify(text)}\n`)
  readLoosely(text)
}

function randomTokens(): string {
  return Array.from({ length: 1 + below(24) }, token).join('')
}

/** With some places taken out or overwritten. */
function damaged(json: string): string {
  let text = json
  for (let times = 1 + below(4); times > 0; times -= 1) {
    const place = below(text.length)
    text = text.slice(0, place) + (below(2) === 0 ? '' : token()) + text.slice(place + 1)
  }
  return text
}

function token(): string {
  return tokens[below(tokens.length)] ?? ''
}

function below(limit: number): number {
  return Math.floor(random() * limit)
}
