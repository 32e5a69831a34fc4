import { formatAnswer } from './_answer-format.ts'
import type { Scene } from './scene.ts'
import type { Solver } from './solver.ts'

/** For `Name a prime between 100 and 1000`: many answers are right, and chance picks one. */
export const pick: Solver = {
  name: 'pick',
  solve(scene) {
    const asked = /\b(?:name|pick|choose|say) (?:a|any|one|some)\b[^.?!\n]{0,40}?\b(prime|number|word)\b/i
    const kind = asked.exec(scene.question)?.[1]?.toLowerCase()
    if (kind === undefined) return undefined
    return { text: formatAnswer(scene, kind === 'word' ? pickWord(scene) : pickNumber(scene, kind === 'prime')) }
  },
}

const words =
  'amber bridge copper dune ember forest garden harbour island jasmine kettle lantern meadow needle orchard pebble quarry river saddle timber umbrella valley willow yarrow zephyr'
const wordList: readonly string[] = words.split(' ')

function pickWord(scene: Scene): string {
  const letter = /\bstart(?:s|ing)? with (?:the letter )?\W?([a-z])\b/i.exec(scene.question)?.[1]?.toLowerCase()
  const wanted = scene.isRight
  const fitting = wordList.filter((word) => letter === undefined || word.startsWith(letter) === wanted)
  return scene.pick(fitting.length > 0 ? fitting : wordList, 'word')
}

function pickNumber(scene: Scene, wantsPrime: boolean): string {
  const stated = /\b(?:between|from) (\d{1,9}) (?:and|to) (\d{1,9})/i.exec(scene.question)
  const low = stated ? Number(stated[1]) : 1
  const high = Math.max(low, stated ? Number(stated[2]) : 100)
  const start = low + Math.floor(scene.draw('number') * (high - low + 1))
  if (!wantsPrime) return String(scene.isRight ? start : high + start)
  const wanted = scene.isRight
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
