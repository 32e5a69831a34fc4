import { MillraceError } from '../../errors/index.ts'
import type { ModelFacts } from '../../gateway/index.ts'
import {
  askedByUrl,
  engineOf,
  resolveModelConfig,
  shownUrl,
  type BackendConfig,
  type ModelConfig,
} from '../../inference/index.ts'
import type { ApiName } from '../../schema/index.ts'
import type { Finding, FindModelsOptions } from './gateway-backends.ts'

/** A gateway has many clients, and what a backend can take at once is known by the backend: it says so when it is too much. */
export const gatewayDefaults = { maxConcurrency: 1024 } as const

type Naming = Pick<FindModelsOptions, 'model'>

/** One model on all of them if it was named, else each with those that list it. */
export function servedModels(
  findings: readonly Finding[],
  { env, ...naming }: Pick<FindModelsOptions, 'env'> & Naming,
): ModelConfig[] {
  return Array.from(serversByName(findings, naming), ([name, where]) => {
    const api = apiOf(where)
    const backends = where.map(({ backend }) => ({ url: backend }))
    return resolveModelConfig({ model: { name, backends, ...(api && { api }) }, defaults: gatewayDefaults, env })
  })
}

/** A model is asked in one API, wherever a request for it goes. What is wrong with one whose backends speak different ones. */
export function tornModel(findings: readonly Finding[], naming: Naming): MillraceError | undefined {
  for (const [name, where] of serversByName(findings, naming)) {
    const answered = where.filter(({ facts }) => facts && facts.apis.length > 0)
    const [first] = answered
    const other = first && answered.find((finding) => apiOf([finding]) !== apiOf([first]))
    if (!other) continue
    const [one, another] = [first, other].map((finding) => `in ${apiOf([finding])} by ${shownUrl(finding.backend)}`)
    const message = `model ${name} is served ${one} and ${another}, and one model has one API. Name two models in --config (models), each with its backends and their \`api\`.`
    return new MillraceError('config_invalid', message)
  }
  return undefined
}

function serversByName(findings: readonly Finding[], { model }: Naming): ReadonlyMap<string, readonly Finding[]> {
  if (model !== undefined) return new Map(findings.length === 0 ? [] : [[model, findings]])
  const offers = new Map<string, Finding[]>()
  for (const finding of findings) {
    for (const { id } of finding.facts?.models ?? []) offers.set(id, [...(offers.get(id) ?? []), finding])
  }
  return offers
}

/** Chat where that is spoken, because only its replies tell about tokens. */
export function apiOf(findings: readonly Finding[]): ApiName | undefined {
  const answer = findings.find(({ facts }) => facts) ?? findings[0]
  if (!answer) return undefined
  const { api } = askedByUrl(answer.backend)
  const apis = answer.facts?.apis ?? [api]
  return apis.includes('chat') ? 'chat' : apis[0]
}

/** Whether it said something that does not mend itself: every request that it got would fail. */
export function isUnusable({ problem }: Finding): boolean {
  return problem !== undefined && !problem.retryable
}

/** Only with those of its backends that may be of use, now or later, by what was found of them. */
export function withoutUnusable(config: ModelConfig, findings: readonly Finding[]): ModelConfig {
  const unusable = findings.filter(
    (finding) => isUnusable(finding) && (finding.serves?.name ?? config.name) === config.name,
  )
  const urls = new Set(unusable.map(({ backend }) => backend))
  return urls.size === 0 ? config : { ...config, backends: config.backends.filter(({ url }) => !urls.has(url)) }
}

/** With what serves it, where its config does not say. */
export function withEngines(config: ModelConfig, findings: readonly Finding[]): ModelConfig {
  const backends = config.backends.map((backend): BackendConfig => {
    const facts = findings.find(({ backend: url }) => url === backend.url)?.facts
    const engine = facts && engineOf(facts.kind)
    return engine ? { engine, ...backend } : backend
  })
  return { ...config, backends }
}

/** What holds for all backends of a model, because a request may go to any of them. */
export function factsOf(
  models: readonly ModelConfig[],
  findings: readonly Finding[],
): Readonly<Record<string, ModelFacts>> {
  return Object.fromEntries(
    models.map(({ name, upstreamName = name, api, backends }) => {
      const urls = new Set(backends.map(({ url }) => url))
      const known = findings.filter(({ backend }) => urls.has(backend))
      // In other APIs than Chat nobody asks for tokens, whatever the backend would tell in that one.
      const tokens = api === 'chat' ? known.flatMap((finding) => capturesOf(finding, upstreamName)) : []
      const lengths = known.flatMap(({ facts: told }) =>
        (told?.models ?? []).flatMap(({ id, contextLength }) =>
          id === upstreamName && contextLength !== undefined ? [contextLength] : [],
        ),
      )
      const facts: ModelFacts = {
        ...(tokens.length > 0 && { capturesTokens: tokens.every(Boolean) }),
        ...(lengths.length > 0 && { contextLength: Math.min(...lengths) }),
      }
      return [name, facts]
    }),
  )
}

/** Whether replies of a model have their tokens. Of all that a server lists one was asked, and speaks only for itself. */
function capturesOf({ facts, serves }: Finding, upstreamName: string): boolean[] {
  const asked = serves ? (serves.upstreamName ?? serves.name) : facts?.models[0]?.id
  if (!facts?.tokenFields) return []
  const isForAll = facts.kind === 'openai' || facts.kind === 'anthropic' || !facts.apis.includes('chat')
  const { ids, logprobs } = facts.tokenFields
  return isForAll || asked === upstreamName ? [ids && logprobs] : []
}
