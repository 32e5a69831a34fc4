/**
 * A script that starts a process in a session of its own, and below it one without any environment: no group and no mark
 * leads to that one. Its number is in the file `pid` of the folder when the script does what comes `then`.
 */
export function hidden(folder: string, then: string): string {
  const below = `env -i sleep 600 & echo $! >${folder}/new; mv ${folder}/new ${folder}/pid; wait`
  return `setsid sh -c '${below}' & until [ -e ${folder}/pid ]; do sleep 0.05; done; ${then}`
}
