import type { TokenFields } from '../inference/index.ts'
import type { Finding, FoundModels } from '../serve/index.ts'
import { columns } from './format/columns.ts'
import { formatCompactCount } from './format/count.ts'
import type { Output } from './output.ts'

const titles = ['backend', 'kind', 'models', 'context', 'tokens']
const nothing = '–'
const maxListedModels = 3

/** What the backends said when they were asked, as a small table, and what those did not that could not be reached. */
export function findingLines(
  { models, findings }: Pick<FoundModels, 'models' | 'findings'>,
  { style, columns: width }: Pick<Output, 'style' | 'columns'>,
): string[] {
  const simulated = models.flatMap(({ name, simulator }) =>
    simulator ? [['built in', 'simulator', name, nothing, 'ids, logprobs, prompt']] : [],
  )
  const rows = [...simulated, ...findings.map(rowOf)]
  const table = columns({
    columns: titles.map((title) => ({ title, shrinks: title === 'models' })),
    rows,
    width,
    style,
  })
  const warnings = findings.flatMap(({ backend, problem }) =>
    problem ? [`${style.warn('warning:')} ${backend} is not used until it answers: ${problem.rawMessage}`] : [],
  )
  return [...table, ...warnings]
}

function rowOf({ backend, facts }: Finding): string[] {
  if (!facts) return [backend, 'unreachable', nothing, nothing, nothing]
  const names = facts.models.map(({ id }) => id)
  const more = names.length > maxListedModels ? ` and ${names.length - maxListedModels} more` : ''
  const lengths = facts.models.flatMap(({ contextLength }) => (contextLength === undefined ? [] : [contextLength]))
  return [
    backend,
    facts.kind,
    names.slice(0, maxListedModels).join(', ') + more || nothing,
    lengths.length === 0 ? nothing : formatCompactCount(Math.min(...lengths)),
    facts.tokenFields ? tokensOf(facts.tokenFields) : 'not known',
  ]
}

function tokensOf({ ids, logprobs, promptIds, routedExperts, version }: TokenFields): string {
  const fields = { ids, logprobs, prompt: promptIds, experts: routedExperts, version }
  const present = Object.entries(fields).flatMap(([name, isThere]) => (isThere ? [name] : []))
  return present.join(', ') || 'none'
}
