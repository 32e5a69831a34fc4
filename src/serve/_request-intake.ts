import { randomUUID } from 'node:crypto'
import { MillraceError } from '../errors/index.ts'
import { holdsGroups } from '../rollout/index.ts'
import { checkTasks, type CheckedTasks } from './_check-tasks.ts'
import type { DueRollouts } from './_due-rollouts.ts'
import { planId } from './_plan-queue.ts'
import { recoverRequests } from './_recover-requests.ts'
import type { KnownRequests } from './_known-requests.ts'
import { journalDetached, journalRequest } from './_request-event.ts'
import { requestPlans, type DueRollout } from './_request-plans.ts'
import type { ServiceParts } from './_service-parts.ts'
import type { KnownRequest } from './known-request.ts'
import type { ResultReader } from './result-reader.ts'
import { checkRequest, type RolloutRequest } from './rollout-request.ts'

/** A request that is accepted: on disk, and bound to get a result for every rollout. */
export interface Submission {
  readonly request: KnownRequest
  readonly results: ResultReader
}

/** A request whose id and attempts are settled. */
interface Asked extends Pick<RolloutRequest, 'sampling' | 'isDetached'>, Pick<KnownRequest, 'id' | 'attempts'> {
  /** How long it may be left alone before it is cancelled. */
  readonly graceMs: number
}

interface IntakeOptions extends Pick<ServiceParts, 'bounds' | 'resolved' | 'store'> {
  readonly requests: KnownRequests
  readonly due: DueRollouts
  /** Throws if nothing more is taken. */
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

  /** Accepts a request, or finds it accepted. */
  async submit(request: RolloutRequest): Promise<Submission> {
    const { bounds, requests, store, requireOpen } = this.#options
    requireOpen()
    const id = request.requestId ?? randomUUID()
    const { attempts, checked } = await this.#check(request)
    const known = requests.request(id)
    if (!known) {
      // Whoever gave no id cannot ask for it again.
      const graceMs = request.requestId === undefined ? 0 : bounds.abandonGraceMs
      return await this.#accept({ ...request, id, attempts, graceMs }, checked)
    }
    if (known.digest !== checked.digest) throw otherBody(id)
    const becomesDetached = request.isDetached === true && !known.isDetached
    // At once: whoever else reads it may leave before it is on disk.
    if (becomesDetached) known.isDetached = true
    const results = await requests.read(known, 'owner')
    if (becomesDetached) await journalDetached(store.journal, known)
    return { request: known, results }
  }

  /** Every request of earlier sittings is known again, and what they left unfinished waits for its place. */
  async recover(): Promise<void> {
    const { store, resolved, requests, bounds } = this.#options
    const { config, loaded } = resolved
    const onDetached = (id: string): void => {
      const known = requests.request(id)
      if (known) known.isDetached = true
    }
    const recovered = recoverRequests(store, { config, environment: loaded.environment, onDetached })
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

  async #check(request: RolloutRequest): Promise<{ attempts: number; checked: CheckedTasks }> {
    const { bounds, resolved } = this.#options
    const { group, attempts: usual } = resolved.config
    const groupSize = holdsGroups(group) ? group.size : undefined
    checkRequest(request, { maxTasks: bounds.maxTasksPerRequest, groupSize })
    const attempts = request.attempts ?? usual
    const checked = await checkTasks({
      environment: resolved.loaded.environment,
      tasks: request.tasks,
      maxTaskBytes: bounds.maxTaskBytes,
      salt: JSON.stringify([attempts, request.sampling ?? null]),
    })
    return { attempts, checked }
  }

  async #accept(asked: Asked, { tasks, digest, bytes }: CheckedTasks): Promise<Submission> {
    const { store, requests, requireOpen } = this.#options
    const { id, attempts, sampling, isDetached = false, graceMs } = asked
    // Its tasks took their time to check.
    requireOpen()
    requests.unsettled.requireRoom(tasks.length * attempts, bytes * attempts)
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
    const due = requestPlans(request, tasks, sampling)
    const accepted = journalRequest(store.journal, request, { tasks, sampling })
    requests.add(request, due, { accepted, graceMs })
    const results = await this.#readAccepted(request)
    this.accepted.requests += 1
    this.accepted.rollouts += due.length
    this.#enqueue(due)
    return { request, results }
  }

  /** Resolves once it is on disk; if it cannot get there, it never was. */
  async #readAccepted(request: KnownRequest): Promise<ResultReader> {
    const { requests } = this.#options
    try {
      return await requests.read(request, 'owner')
    } catch (error) {
      requests.withdraw(request)
      throw error
    }
  }

  #enqueue(rollouts: readonly DueRollout[]): void {
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
    `request ${id} was made before with another body; the same id stands for the same tasks, attempts and sampling`,
    { data: { requestId: id } },
  )
}
