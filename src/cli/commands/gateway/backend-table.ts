import { shownUrl, type BackendFacts } from '../../../inference/index.ts'
import type { ProbeResult, FoundModels } from '../../../serve/index.ts'
import { textTable } from '../../terminal/layout.ts'
import { formatCompactCount } from '../../terminal/format.ts'
import type { Output } from '../../terminal/output.ts'

const titles = ['backend', 'kind', 'models', 'context', 'tokens']
const nothing = '–'
const maxListedModels = 3

export function backendLines(
  found: Pick<FoundModels, 'models' | 'probeResults'>,
  { style }: Pick<Output, 'style'>,
  secrets: readonly string[] = [],
): string[] {
  const { models } = found
  const probeResults = found.probeResults.map((result): ProbeResult => ({
    ...result,
    backend: shownUrl(result.backend, secrets),
  }))
  const simulated = models.flatMap(({ name, simulator }) =>
    simulator ? [['built in', 'simulator', name, nothing, 'ids, logprobs, prompt']] : [],
  )
  const rows = [...simulated, ...probeResults.map(rowOf)]
  // Nothing is cut off: people compare the table with what they meant.
  const width = Number.POSITIVE_INFINITY
  const table = textTable({ columns: titles.map((title) => ({ title })), rows, width, style })
  return [...table, ...probeResults.flatMap(warningsOf).map((warning) => `${style.warn('warning:')} ${warning}`)]
}

function warningsOf({ backend, facts, problem, serves }: ProbeResult): string[] {
  if (problem) {
    const until = problem.retryable ? 'answers' : 'can be'
    return [`${backend} is not used until it ${until}: ${problem.rawMessage}`]
  }
  if (!serves) return []
  const { name, upstreamName = name } = serves
  const listed = facts.models.map(({ id }) => id)
  // Providers list dated names of models that can also be asked for without the date.
  if (listed.length === 0 || listed.some((id) => id.startsWith(upstreamName))) return []
  const whose = upstreamName === name ? '' : ` (upstreamName of ${name})`
  return [`${backend} does not list ${upstreamName}${whose}, and may refuse it; it lists ${namesText(listed)}`]
}

function rowOf({ backend, facts, problem, serves }: ProbeResult): string[] {
  const served = serves && servedText(serves)
  if (problem) return [backend, problem.retryable ? 'unreachable' : 'unusable', served ?? nothing, nothing, nothing]
  const lengths = facts.models.flatMap(({ contextLength }) => (contextLength === undefined ? [] : [contextLength]))
  return [
    backend,
    facts.kind,
    served ?? (namesText(facts.models.map(({ id }) => id)) || nothing),
    lengths.length === 0 ? nothing : formatCompactCount(Math.min(...lengths)),
    tokensText(facts, serves),
  ]
}

function servedText({ name, upstreamName = name }: NonNullable<ProbeResult['serves']>): string {
  return upstreamName === name ? name : `${name} (${upstreamName})`
}

function namesText(names: readonly string[]): string {
  const more = names.length > maxListedModels ? ` and ${names.length - maxListedModels} more` : ''
  return names.slice(0, maxListedModels).join(', ') + more
}

/** The tokens that a backend returns. Incomplete ones are useless for training, so that is said at the start. */
export function tokensText({ tokenFields: fields }: BackendFacts, serves: ProbeResult['serves']): string {
  const api = serves?.api ?? 'chat'
  if (api !== 'chat') return `none in ${api}: cannot be trained on`
  if (!fields) return 'not known yet'
  const { ids, logprobs, promptIds, routedExperts, version, inStreams } = fields
  const names = { ids, logprobs, prompt: promptIds, experts: routedExperts, version }
  const present = Object.entries(names).flatMap(([name, isThere]) => (isThere ? [name] : []))
  if (present.length === 0) return 'none: cannot be trained on'
  if (!ids || !logprobs || !promptIds) return `only ${present.join(', ')}: cannot be trained on`
  return present.join(', ') + (inStreams ? '' : ' (whole replies)')
}
