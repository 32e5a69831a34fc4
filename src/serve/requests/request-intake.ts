import { randomUUID } from 'node:crypto'
import { MillraceError } from '../../errors/index.ts'
import { waitsForGroups, type PlannedAttempt } from '../../rollout/index.ts'
import { rolloutId } from '../../schema/index.ts'
import { type PendingRollouts, planId } from '../rollouts/pending-rollouts.ts'
import type { ServiceParts } from '../rollouts/service-parts.ts'
import type { ResultReader } from './active-request.ts'
import {
  type ValidatedTask,
  type ValidatedTasks,
  checkRequest,
  checkTasks,
  type RolloutRequest,
} from './request-body.ts'
import type { PendingRollout, KnownRequest } from './known-request.ts'
import type { KnownRequests } from './known-requests.ts'
import { messageBytes, type RequestTerms, rolloutTerms, termsDigest } from './request-terms.ts'
import { journalDetached, journalRequest, recoverRequests } from './request-journal.ts'

/** A request that is accepted: on disk, and bound to get a result for every rollout. */
export interface Submission {
  readonly request: KnownRequest
  readonly results: ResultReader
}

interface Asked extends RequestTerms, Pick<RolloutRequest, 'isDetached'>, Pick<KnownRequest, 'id' | 'attempts'> {
  readonly graceMs: number
  readonly heldBytes: number
}

interface CheckedRequest {
  readonly attempts: number
  readonly checked: ValidatedTasks
  /** What each rollout holds beside its task while it waits. */
  readonly heldBytes: number
}

interface IntakeOptions extends Pick<ServiceParts, 'bounds' | 'resolved' | 'store'> {
  readonly requests: KnownRequests
  readonly due: PendingRollouts
  readonly requireOpen: () => void
}

/** The way in: a request is checked, journalled and added to the known ones, and from then on its rollouts are due. */
export class RequestIntake {
  readonly accepted = { requests: 0, rollouts: 0 }
  readonly #options: IntakeOptions
  #nextTask = 0

  constructor(options: IntakeOptions) {
    this.#options = options
  }

  async submit(request: RolloutRequest): Promise<Submission> {
    const { bounds, requests, store, requireOpen } = this.#options
    requireOpen()
    const id = request.requestId ?? randomUUID()
    const { attempts, checked, heldBytes } = await this.#check(request)
    const known = requests.request(id)
    if (!known) {
      // Whoever gave no id cannot ask for it again.
      const graceMs = request.requestId === undefined ? 0 : bounds.abandonGraceMs
      return await this.#accept({ ...request, id, attempts, graceMs, heldBytes }, checked)
    }
    if (known.digest !== checked.digest) throw otherBody(id)
    const becomesDetached = request.isDetached === true && !known.isDetached
    // At once: whoever else reads it may leave before it is on disk.
    if (becomesDetached) known.isDetached = true
    const results = await requests.read(known, 'owner')
    if (becomesDetached) await journalDetached(store.journal, known)
    return { request: known, results }
  }

  /** Every request of earlier launches is known again, and what they left unfinished waits for its place. */
  async recover(): Promise<void> {
    const { store, resolved, requests, bounds } = this.#options
    const { config, loaded } = resolved
    const recovered = recoverRequests(store, {
      config,
      environment: loaded.environment,
      onChange: (id, change) => void Object.assign(requests.request(id) ?? {}, change),
    })
    for (let next = await recovered.next(); ; next = await recovered.next()) {
      if (next.done) {
        this.#nextTask = next.value
        return
      }
      const { request, unfinished } = next.value
      requests.add(request, unfinished, { accepted: Promise.resolve(), graceMs: bounds.abandonGraceMs })
      this.#enqueue(unfinished)
    }
  }

  async #check(request: RolloutRequest): Promise<CheckedRequest> {
    const { bounds, resolved } = this.#options
    const { group, attempts: usual } = resolved.config
    const groupSize = waitsForGroups(group) ? group.size : undefined
    checkRequest(request, { maxTasks: bounds.maxTasksPerRequest, groupSize })
    const attempts = request.attempts ?? usual
    const checked = await checkTasks({
      environment: resolved.loaded.environment,
      tasks: request.tasks,
      maxTaskBytes: bounds.maxTaskBytes,
      salt: termsDigest(request, attempts),
    })
    return { attempts, checked, heldBytes: messageBytes(request, bounds.maxTaskBytes) }
  }

  async #accept(asked: Asked, { tasks, digest, bytes }: ValidatedTasks): Promise<Submission> {
    const { store, requests, requireOpen } = this.#options
    const { id, attempts, isDetached = false, graceMs, heldBytes } = asked
    // Its tasks took their time to check.
    requireOpen()
    requests.unsettled.requireRoom(tasks.length * attempts, (bytes + heldBytes * tasks.length) * attempts)
    const firstTask = this.#nextTask
    this.#nextTask += tasks.length
    const request: KnownRequest = {
      id,
      digest,
      firstTask,
      tasks: tasks.length,
      attempts,
      isDetached,
      at: Date.now(),
      outcomes: {},
    }
    const due = requestPlans(request, tasks, asked)
    const accepted = journalRequest(store.journal, request, { tasks, terms: asked })
    requests.add(request, due, { accepted, graceMs })
    const results = await requests.read(request, 'owner').catch((error: unknown) => {
      requests.withdraw(request)
      throw error
    })
    this.accepted.requests += 1
    this.accepted.rollouts += due.length
    this.#enqueue(due)
    return { request, results }
  }

  #enqueue(rollouts: readonly PendingRollout[]): void {
    const { requests, due } = this.#options
    for (const { plan } of rollouts) {
      const unsettled = requests.unsettled.get(planId(plan))
      if (unsettled) due.add(unsettled, plan)
    }
  }
}

function otherBody(id: string): MillraceError {
  return new MillraceError(
    'run_mismatch',
    `request ${id} was made before with another body; an id belongs to one set of tasks, attempts, sampling and messages`,
    { data: { requestId: id } },
  )
}

function requestPlans(
  { firstTask, attempts }: KnownRequest,
  tasks: readonly ValidatedTask[],
  asked: Asked,
): PendingRollout[] {
  const due: PendingRollout[] = []
  const terms = rolloutTerms(asked)
  let index = firstTask
  for (const { name, value, bytes } of tasks) {
    const task = { index, id: name ?? String(index), data: value }
    for (let sample = 0; sample < attempts; sample += 1) {
      const id = rolloutId(index, sample)
      const plan: PlannedAttempt = { kind: 'attempt', id, sample, task, attempt: 1, ...terms }
      due.push({ plan, bytes: bytes + asked.heldBytes })
    }
    index += 1
  }
  return due
}
