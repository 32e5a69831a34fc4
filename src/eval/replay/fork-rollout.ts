import { join } from 'node:path'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import type { Environment } from '../../env/index.ts'
import type { Backend } from '../../apis/index.ts'
import type { ModelConfigInput, NamedModelInput } from '../../inference/index.ts'
import {
  callStyleOf,
  isReply,
  recordingToFork,
  toolsWithoutServers,
  unresumableCall,
  type PromptOverride,
  type StoredSession,
} from '../../rollout/index.ts'
import { closedObject, outcomes } from '../../schema/index.ts'
import type { RunReader } from '../../store/index.ts'
import { evaluate } from '../evaluate.ts'
import { type Evaluation, requireOptions, type RunOptions, sharedOptions } from '../options.ts'
import type { Fork } from './fork.ts'
import { readRollout, RecordedCatalogues, type RecordedRollout } from './recorded-rollout.ts'
import {
  loadStoredEnvironment,
  readStoredConfig,
  storedPromptOverride,
  storedSeed,
  type StoredRunConfig,
} from './stored-config.ts'
import { knownTask } from './stored-tasks.ts'
import type { ParsedToolCall } from '../../tool-formats/index.ts'

export interface ForkOptions {
  readonly rollout: string
  /** How many turns are repeated from the recording; 0 repeats none. The next turn is asked of the model. */
  readonly turn: number
  /** The model that goes on; the one that made the rollout if not given. */
  readonly model?: string | ModelConfigInput
  /** Named models beside those of the run. */
  readonly models?: Readonly<Record<string, NamedModelInput>>
  /** Replaces the system message, or goes before everything else if there was none. */
  readonly system?: string
  /** Replaces the first user message. */
  readonly prompt?: string
  /** How many rollouts go on from there; one if not given. */
  readonly samples?: number
  /** Uses recorded answers also of tools that say their calls cannot be repeated. */
  readonly reusesTools?: boolean
  /** Replaces the environment that made the run: a module, or an environment itself. */
  readonly environment?: string | Environment
  /** Options of the environment that differ from the run's, or were not kept with it. */
  readonly options?: Readonly<Record<string, unknown>>
  readonly concurrency?: number
  readonly preflight?: boolean
  readonly run?: RunOptions
  readonly backends?: Readonly<Record<string, readonly Backend[]>>
  readonly signal?: AbortSignal
}

const forkOptionsSchema = closedObject({
  // Checked with the recording, which says what there is.
  rollout: z.unknown().optional(),
  turn: z.unknown().optional(),
  system: z.string().optional(),
  prompt: z.string().optional(),
  samples: z.int().min(1).optional(),
  reusesTools: z.boolean().optional(),
  ...sharedOptions,
} satisfies Record<keyof ForkOptions, unknown>)

/** The first turns are repeated by place: the n-th turn gets the recorded reply, whatever the prompt says now. */
export async function forkRollout(reader: RunReader, options: ForkOptions): Promise<Evaluation> {
  requireOptions(forkOptionsSchema, options, 'forkRollout()')
  const config = readStoredConfig(reader)
  if (config.isServed) {
    throw new MillraceError(
      'run_mismatch',
      `run ${config.name} belongs to a server, and its rollouts cannot be forked, because their sampling came with requests. Replay or rescore them, or send new requests to the server`,
    )
  }
  const recording = readRollout(reader, options.rollout)
  const loaded = await loadStoredEnvironment(config, options.environment, options.options)
  const kept = keptSessions(recording, options.turn)
  const { record } = recording
  const { index } = record.task
  const task = await knownTask({ reader, config, loaded, signal: options.signal }, index)
  if (!options.reusesTools) {
    const catalogues = new RecordedCatalogues(reader).of(record.id, record.attempt) ?? []
    const box = toolsWithoutServers(loaded.environment, loaded.options, { catalogues, task: task.task })
    const conversations = kept.map(({ nodes }) => nodes)
    const call = unresumableCall(conversations, box, callStyleOf(config))
    if (call) throw unrepeatable(call, options.turn)
  }
  const { turn, system, prompt, reusesTools } = options
  // A fork of a fork begins with the same words, unless it has its own.
  const opening: PromptOverride = {
    ...storedPromptOverride(config),
    ...(system !== undefined && { system }),
    ...(prompt !== undefined && { prompt }),
  }
  const { id, attempt } = record
  const from = { run: config.name, rollout: id, attempt, turn, seed: storedSeed(config, id, attempt) }
  const fork: Fork = {
    from: { ...from, ...opening, ...(reusesTools && { reusesTools }) },
    task,
    recording: recordingToFork(record.id, kept),
    outputs: join(reader.folder, 'outputs', record.id),
    asked: askedModels(config, recording),
    ...(Object.keys(opening).length > 0 && { opening }),
  }
  const models = Object.fromEntries(config.models.map((model) => [model.name, model]))
  const { environment, specifier, rawOptions } = loaded
  return evaluate({
    environment: specifier ?? environment,
    options: rawOptions,
    model: options.model ?? config.model,
    models: { ...models, ...options.models },
    judge: config.judge,
    judgeConcurrency: config.judgeConcurrency,
    attempts: options.samples ?? 1,
    limit: index + 1,
    limits: config.limits,
    sampling: config.sampling,
    captureTokens: config.captureTokens,
    ...(config.seed !== null && { seed: config.seed }),
    ...(config.agent && { agent: config.agent }),
    toolFormat: config.toolFormat ?? 'native',
    passThreshold: config.passThreshold,
    fork,
    ...(options.concurrency !== undefined && { concurrency: options.concurrency }),
    ...(options.preflight !== undefined && { preflight: options.preflight }),
    ...(options.run && { run: options.run }),
    ...(options.backends && { backends: options.backends }),
    ...(options.signal && { signal: options.signal }),
  })
}

/** The rollout's session up to a turn, with the answers to its calls, and children that began before the next. */
function keptSessions({ record, sessions }: RecordedRollout, turn: number): StoredSession[] {
  const [own, ...children] = sessions
  const nodes = own?.nodes ?? []
  const replies = nodes.filter(isReply)
  if (!Number.isInteger(turn) || turn < 0 || turn >= replies.length) {
    const range =
      replies.length === 1 ? '0, which repeats no turn' : `0, which repeats no turn, to ${replies.length - 1}`
    const turns = `${replies.length} turn${replies.length === 1 ? '' : 's'}`
    throw new MillraceError(
      'usage',
      replies.length === 0
        ? `rollout ${record.id} has no turn to continue from: it ended as ${record.outcome}`
        : `rollout ${record.id} has ${turns} and cannot be forked after turn ${turn}: --turn (turn) takes ${range}`,
    )
  }
  const next = replies[turn]
  if (!own || !next) return []
  const before = children.filter(({ startedAt }) => startedAt < next.at)
  return [{ ...own, nodes: nodes.filter(({ seq }) => seq < next.seq) }, ...before]
}

function askedModels(
  { model: policy, judge }: StoredRunConfig,
  { record, sessions, verdicts }: RecordedRollout,
): ReadonlySet<string> {
  // Nobody knows whether the reward of a rollout that was never scored asks a judge, so the judge is included.
  const judges = outcomes[record.outcome].scored ? verdicts.map(({ model }) => model) : [judge]
  // A child on the model that made the rollout is asked of the model that goes on.
  const ofChildren = sessions.slice(1).flatMap(({ nodes }) => nodes.flatMap(({ call }) => call?.model ?? []))
  return new Set([...judges, ...ofChildren.filter((model) => model !== policy)])
}

/** A fork with calls that can be neither repeated nor taken as made would be in a state that never existed. */
function unrepeatable({ function: { name: tool } }: ParsedToolCall, turn: number): MillraceError {
  return new MillraceError(
    'config_invalid',
    `tool ${tool} was called in the first ${turn} turn${turn === 1 ? '' : 's'}, and does not declare its calls ` +
      'repeatable (`resume`): the effects of these calls would be missing in the fork. Fork before that call with a smaller ' +
      '--turn (turn), or accept the recorded answers with --reuse-tools (reusesTools).',
    { data: { tool } },
  )
}
