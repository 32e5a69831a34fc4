/** What choosing needs to know of a worker. */
interface Candidate {
  readonly takesWork: boolean
  readonly load: number
  readonly lagMs: number
  worksOn(task: number): boolean
}

/** A worker whose loop is this late gets no new rollouts while another can take them: its own would only wait longer. */
const maxLagMs = 200

/** How much busier than the least busy worker one may be and still get the next rollout of its task. */
const affinitySlack = { calls: 4, share: 0.25 } as const

/**
 * The least busy of the workers that keep up, or of all if none does. A worker that is at the same task already comes first,
 * unless it is clearly busier, so that what an environment keeps of a task is used again.
 */
export function chooseWorker<Worker extends Candidate>(
  workers: Iterable<Worker>,
  task: number | undefined,
): Worker | undefined {
  const takers = [...workers].filter(({ takesWork }) => takesWork)
  const prompt = takers.filter(({ lagMs }) => lagMs <= maxLagMs)
  const candidates = prompt.length > 0 ? prompt : takers
  const least = leastBusy(candidates)
  if (!least || task === undefined) return least
  const familiar = leastBusy(candidates.filter((worker) => worker.worksOn(task)))
  const slack = Math.max(affinitySlack.calls, least.load * affinitySlack.share)
  return familiar && familiar.load <= least.load + slack ? familiar : least
}

function leastBusy<Worker extends Candidate>(workers: readonly Worker[]): Worker | undefined {
  let least = workers[0]
  for (const worker of workers) if (least && worker.load < least.load) least = worker
  return least
}
