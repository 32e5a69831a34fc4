import { formatAnswer } from './_answer-format.ts'
import type { SolverContext } from './solver-context.ts'
import type { Solver } from './solver.ts'

/** For `Name a prime between 100 and 1000`: many answers are right, and chance picks one. */
export const pick: Solver = {
  name: 'pick',
  solve(context) {
    const asked = /\b(?:name|pick|choose|say) (?:a|any|one|some)\b[^.?!\n]{0,40}?\b(prime|number|word)\b/i
    const kind = asked.exec(context.question)?.[1]?.toLowerCase()
    if (kind === undefined) return undefined
    return { text: formatAnswer(context, kind === 'word' ? pickWord(context) : pickNumber(context, kind === 'prime')) }
  },
}

const words =
  'amber bridge copper dune ember forest garden harbour island jasmine kettle lantern meadow needle orchard pebble quarry river saddle timber umbrella valley willow yarrow zephyr'
const wordList: readonly string[] = words.split(' ')

function pickWord(context: SolverContext): string {
  const letter = /\bstart(?:s|ing)? with (?:the letter )?\W?([a-z])\b/i.exec(context.question)?.[1]?.toLowerCase()
  const wanted = context.isRight
  const fitting = wordList.filter((word) => letter === undefined || word.startsWith(letter) === wanted)
  return context.pick(fitting.length > 0 ? fitting : wordList, 'word')
}

function pickNumber(context: SolverContext, wantsPrime: boolean): string {
  const stated = /\b(?:between|from) (\d{1,9}) (?:and|to) (\d{1,9})/i.exec(context.question)
  const low = stated ? Number(stated[1]) : 1
  const high = Math.max(low, stated ? Number(stated[2]) : 100)
  const start = low + Math.floor(context.draw('number') * (high - low + 1))
  if (!wantsPrime) return String(context.isRight ? start : high + start)
  const wanted = context.isRight
  // Searches from a random place onwards and around: at most the whole range, in practice the gap to the next prime.
  for (let step = 0; step <= Math.min(high - low, 10_000); step += 1) {
    const candidate = low + ((start - low + step) % (high - low + 1))
    if (isPrime(candidate) === wanted) return String(candidate)
  }
  return String(start)
}

function isPrime(value: number): boolean {
  if (value < 2) return false
  for (let divisor = 2; divisor * divisor <= value; divisor += 1) if (value % divisor === 0) return false
  return true
}
