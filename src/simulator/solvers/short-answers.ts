import { formatAnswer, type Solver, type SolverContext } from './solver.ts'
import { synthesiseArguments } from './synthesise.ts'

const subjects: readonly (readonly [RegExp, Readonly<Record<string, string>>])[] = [
  [
    /\bcapital of (?:the )?([a-z]+)/i,
    {
      france: 'Paris',
      japan: 'Tokyo',
      kenya: 'Nairobi',
      peru: 'Lima',
      norway: 'Oslo',
      canada: 'Ottawa',
      egypt: 'Cairo',
      australia: 'Canberra',
    },
  ],
  [
    /\bchemical symbol (?:of|for) ([a-z]+)/i,
    { gold: 'Au', iron: 'Fe', sodium: 'Na', silver: 'Ag', lead: 'Pb', tin: 'Sn' },
  ],
  [
    /\bwho wrote (?:the )?"?([a-z]+)/i,
    { hamlet: 'William Shakespeare', emma: 'Jane Austen', faust: 'Goethe', dracula: 'Bram Stoker', ulysses: 'Joyce' },
  ],
  [
    /\b(largest|smallest|hottest|nearest) planet\b/i,
    { largest: 'Jupiter', smallest: 'Mercury', hottest: 'Venus', nearest: 'Mercury' },
  ],
  [/\bhow many legs (?:does|has) an? ([a-z]+)/i, { spider: '8', ant: '6', crab: '10', horse: '4', hen: '2' }],
]

export const facts: Solver = {
  name: 'facts',
  solve(context) {
    for (const [pattern, known] of subjects) {
      const key = pattern.exec(context.question)?.[1]?.toLowerCase()
      const fact = key === undefined ? undefined : known[key]
      if (fact === undefined) continue
      const others = Object.values(known).filter((value) => value !== fact)
      return { text: formatAnswer(context, context.isRight ? fact : context.pick(others, 'other')) }
    }
    return undefined
  },
}

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

export const generic = {
  name: 'generic',
  solve(context) {
    const result = context.results().at(-1)
    if (!result && context.tools.length > 0) {
      const tool = context.pick(context.tools, 'tool')
      return { calls: [{ name: tool.function.name, arguments: synthesiseArguments(context, tool) }] }
    }
    if (result) return { text: formatAnswer(context, shorten(result.text)) }
    return { text: formatAnswer(context, context.pick(replies, 'reply')) }
  },
} as const satisfies Solver

const replies = ['yes', 'no', 'it depends', 'not known', 'the first one', 'the second one'] as const

function shorten(text: string): string {
  const line = text.split('\n', 1)[0] ?? ''
  return line.length > 120 ? `${line.slice(0, 120)}…` : line
}
