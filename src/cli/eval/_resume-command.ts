import { shellQuote } from '../format/shell-quote.ts'

/** The command line that continues this run and no other: the same words with the run's name. */
export function resumeCommand(
  run: string,
  { program, words, command = 'eval' }: { program: string; words: readonly string[]; command?: 'eval' | 'fork' },
): string {
  const kept = withoutFlag(words, '--run').filter((word, index, left) => {
    if (left[index - 1] === '--resume' && word === run) return false
    return word !== '--new' && !/^--resume(=|$)/.test(word)
  })
  return `${program} ${command} ${shellQuote([...kept, '--run', run])}`
}

/** The words without a flag and its value. */
export function withoutFlag(words: readonly string[], flag: string): string[] {
  return words.filter((word, index) => words[index - 1] !== flag && word !== flag && !word.startsWith(`${flag}=`))
}
