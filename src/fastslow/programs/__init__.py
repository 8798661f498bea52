"""Programs of one's own: conversion to competition files, the zoo of JAX programs, the sample competition."""
