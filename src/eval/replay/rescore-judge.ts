import type { JudgeRequest } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { closeAll, Resource, Semaphore, type Variables } from '../../kit/index.ts'
import { askJudge, ModelSet, questionDigest, VerdictReader, type Tally } from '../../rollout/index.ts'
import type { AssistantMessage, RolloutRecord } from '../../schema/index.ts'
import type { RunReader } from '../../store/index.ts'
import { settingsOf, type StoredRunConfig } from './stored-config.ts'
import { readVerdicts } from './recording.ts'

/** Answers the questions of rewards with the recorded verdicts; other questions are asked of a judge only if that is allowed. */
export class RescoreJudge extends Resource {
  readonly #reader: RunReader
  readonly #config: StoredRunConfig
  readonly #models: ModelSet | undefined
  readonly #permits: Semaphore
  readonly #tally: Tally
  /** The recorded verdicts of the rollouts that are being scored; an entry is freed with its record. */
  readonly #verdicts = new WeakMap<RolloutRecord, VerdictReader>()

  constructor(options: {
    reader: RunReader
    config: StoredRunConfig
    isLive: boolean
    /** Adds up what live judges use. */
    tally: Tally
    env: Variables
  }) {
    super()
    const { reader, config, isLive, env } = options
    this.#reader = reader
    this.#config = config
    this.#tally = options.tally
    this.#permits = new Semaphore(config.judgeConcurrency)
    if (isLive) this.#models = new ModelSet({ configs: config.models, env, onLimitChange: () => {} })
  }

  ask(request: JudgeRequest, record: RolloutRecord, signal: AbortSignal): Promise<AssistantMessage> {
    const name = request.model ?? this.#config.judge
    const recorded = this.#verdictsOf(record).take(questionDigest(name, request))
    if (recorded) return Promise.resolve(recorded.reply)
    const models = this.#models
    if (!models) return Promise.reject(notRecorded(name))
    return askJudge(request, {
      services: {
        settings: settingsOf(this.#config),
        judgePermits: this.#permits,
        model: (wanted) => models.get(wanted),
        // Nothing is added to the stored run.
        journal: { append: () => {} },
      },
      rollout: record.id,
      attempt: record.attempt,
      tally: this.#tally,
      clock: undefined,
      trace: undefined,
      verdicts: undefined,
      signal,
    })
  }

  #verdictsOf(record: RolloutRecord): VerdictReader {
    const known = this.#verdicts.get(record)
    if (known) return known
    const verdicts = new VerdictReader(readVerdicts(this.#reader, record.id, record.attempt), undefined, {
      repeats: true,
    })
    this.#verdicts.set(record, verdicts)
    return verdicts
  }

  protected onClose(): Promise<void> {
    return closeAll([this.#models])
  }
}

function notRecorded(judge: string): MillraceError {
  return new MillraceError(
    'reward_failed',
    `it asks the judge ${judge} something that was not asked when the run was made; --judge live (judge: 'live') asks it now`,
  )
}
