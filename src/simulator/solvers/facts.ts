import { formatAnswer } from './_answer-format.ts'
import type { Solver } from './solver.ts'

/** The facts that the simulator knows: enough for short factual questions. */
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

/** Recalls a fact; a wrong decision recalls another one of the same kind. */
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
